// Every kernel of cpu against ref on small, awkward shapes: odd extents, tails, several blocks.
#include "weft/backend/cpu/kernel_test_util.h"

namespace weft::cpu {
namespace {

constexpr DType kCompute[] = {DType::f32, DType::bf16, DType::f16};

Shape weight_shape(bool transpose_w, int64_t inner, int64_t outer) {
  return transpose_w ? Shape{outer, inner} : Shape{inner, outer};
}

std::vector<int64_t> some_ids(int64_t count, int64_t limit) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((i * 7919 + 13) % limit);
  return ids;
}

TEST(CpuMatmul, EveryLayoutAndEpilogue) {
  const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {64, 48, 96}, {70, 100, 1100}, {7, 33, 9001}};
  for (const DType c : kCompute) {
    for (const auto& [rows, outer, inner] : sizes) {
      for (const bool transpose_w : {false, true}) {
        for (const bool extras : {false, true}) {
          SCOPED_TRACE(testing::Message() << dtype_name(c) << " " << rows << "x" << outer << "x"
                                          << inner << " transpose_w " << transpose_w);
          KernelCase test{OpKind::matmul, {{"transpose_w", transpose_w}}, {}, {}, {}};
          test.inputs = {random_operand(c, {1, rows, inner}),
                         random_operand(c, weight_shape(transpose_w, inner, outer)),
                         extras ? random_operand(DType::f32, {outer}) : absent(),
                         extras ? random_operand(c, {1, rows, outer}) : absent()};
          test.outputs = {{c, {1, rows, outer}}};
          expect_like_ref(test, 1e-5);
          if (extras) {
            test.in_place = {{0, 3}};
            expect_like_ref(test, 1e-5);
          }
        }
      }
    }
  }
}

TEST(CpuMatmul, LargerThanABlock) {
  // rows, outer, inner: several blocks and pieces of k, with and without partial tiles.
  const int64_t sizes[][3] = {{900, 448, 832}, {805, 71, 601}, {130, 1100, 64}, {40, 33, 4100}};
  for (const auto& [rows, outer, inner] : sizes) {
    for (const bool transpose_w : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << rows << "x" << outer << "x" << inner << " transpose_w " << transpose_w);
      const DType c = transpose_w ? DType::f16 : DType::bf16;
      KernelCase test{OpKind::matmul, {{"transpose_w", transpose_w}}, {}, {}, {{0, 3}}};
      test.inputs = {random_operand(c, {1, rows, inner}),
                     random_operand(c, weight_shape(transpose_w, inner, outer)),
                     random_operand(DType::f32, {outer}), random_operand(c, {1, rows, outer})};
      test.outputs = {{c, {1, rows, outer}}};
      expect_like_ref(test, 1e-5);
      const Shape w = weight_shape(transpose_w, inner, outer);
      KernelCase grad{OpKind::matmul_wgrad, {{"transpose_w", transpose_w}}, {}, {}, {}};
      grad.inputs = {random_operand(c, {rows, inner}), random_operand(c, {rows, outer}), absent()};
      grad.outputs = {{DType::f32, w}};
      expect_like_ref(grad, 1e-5);
      grad.inputs[2] = random_operand(DType::f32, w);
      expect_like_ref(grad, 1e-5);
      grad.in_place = {{0, 2}};
      expect_like_ref(grad, 1e-5);
    }
  }
}

TEST(CpuMatmul, AResultThatIsWrittenPastTheCaches) {
  const int64_t rows = 1100, outer = 2048, inner = 40;
  for (const DType result : kCompute) {
    KernelCase test{OpKind::matmul_wgrad, {{"transpose_w", false}}, {}, {}, {}};
    test.inputs = {random_operand(DType::bf16, {inner, rows}),
                   random_operand(DType::bf16, {inner, outer}), absent()};
    test.outputs = {{DType::f32, {rows, outer}}};
    if (result != DType::f32) {
      test.op = OpKind::matmul;
      test.inputs = {random_operand(result, {rows, inner}), random_operand(result, {inner, outer}),
                     absent(), absent()};
      test.outputs = {{result, {rows, outer}}};
    }
    expect_like_ref(test, 1e-5);
  }
}

TEST(CpuMatmul, AnyExtentMayBeZero) {
  const int64_t sizes[][3] = {{0, 40, 64}, {40, 0, 64}, {40, 33, 0}, {0, 0, 0}};
  for (const DType c : kCompute) {
    for (const auto& [rows, outer, inner] : sizes) {
      for (const bool transpose_w : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype_name(c) << " " << rows << "x" << outer << "x"
                                        << inner << " transpose_w " << transpose_w);
        const Shape w = weight_shape(transpose_w, inner, outer);
        KernelCase test{OpKind::matmul, {{"transpose_w", transpose_w}}, {}, {}, {}};
        test.inputs = {random_operand(c, {1, rows, inner}), random_operand(c, w), absent(),
                       absent()};
        test.outputs = {{c, {1, rows, outer}}};
        expect_like_ref(test);  // inner = 0: zeros
        test.inputs[2] = random_operand(DType::f32, {outer});
        test.inputs[3] = random_operand(c, {1, rows, outer});
        expect_like_ref(test);  // inner = 0: bias + residual
        KernelCase grad{OpKind::matmul_wgrad, {{"transpose_w", transpose_w}}, {}, {}, {}};
        grad.inputs = {random_operand(c, {rows, inner}), random_operand(c, {rows, outer}),
                       absent()};
        grad.outputs = {{DType::f32, w}};
        expect_like_ref(grad);  // rows = 0: zeros
        grad.inputs[2] = random_operand(DType::f32, w);
        expect_like_ref(grad);
      }
    }
  }
}

TEST(CpuMatmul, WeightGradient) {
  const int64_t sizes[][3] = {{1, 1, 1}, {50, 31, 17}, {4500, 20, 40}, {300, 130, 200}};
  for (const DType c : kCompute) {
    for (const auto& [rows, outer, inner] : sizes) {
      for (const bool transpose_w : {false, true}) {
        for (const bool acc : {false, true}) {
          SCOPED_TRACE(testing::Message() << dtype_name(c) << " " << rows << "x" << outer << "x"
                                          << inner << " transpose_w " << transpose_w);
          const Shape w = weight_shape(transpose_w, inner, outer);
          KernelCase test{OpKind::matmul_wgrad, {{"transpose_w", transpose_w}}, {}, {}, {}};
          test.inputs = {random_operand(c, {rows, inner}), random_operand(c, {rows, outer}),
                         acc ? random_operand(DType::f32, w) : absent()};
          test.outputs = {{DType::f32, w}};
          if (acc) test.in_place = {{0, 2}};
          expect_like_ref(test, 1e-5);
        }
      }
    }
  }
}

TEST(CpuElementwise, ActivationsAndGradients) {
  for (const DType c : kCompute) {
    for (const char* kind : {"gelu", "gelu_tanh", "silu"}) {
      SCOPED_TRACE(testing::Message() << dtype_name(c) << " " << kind);
      const Attrs attrs{{"kind", std::string(kind)}};
      std::vector<double> wide;
      for (int i = 0; i < 2 * 1501; ++i) wide.push_back((i - 1500) / 100.0);
      const Operand x = floats({2, 1501}, wide, c);
      const Operand dy = random_operand(c, {2, 1501});
      const TensorType y{c, {2, 1501}};
      expect_like_ref({OpKind::activation, attrs, {x}, {y}, {}});
      expect_like_ref({OpKind::activation_grad, attrs, {x, dy}, {y}, {{0, 1}}});
      expect_like_ref({OpKind::glu, attrs, {x, dy}, {y}, {}});
      expect_like_ref({OpKind::glu_grad, attrs, {x, dy, random_operand(c, {2, 1501})}, {y, y}, {}});
    }
  }
}

TEST(CpuElementwise, AddAndCast) {
  const Shape shape{3, 20011};
  for (const DType c : kCompute) {
    expect_like_ref({OpKind::add,
                     {},
                     {random_operand(c, shape), random_operand(c, shape)},
                     {{c, shape}},
                     {{0, 0}}});
    for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      const Attrs attrs{{"dtype", std::string(dtype_name(to))}};
      expect_like_ref({OpKind::cast, attrs, {random_operand(c, shape)}, {{to, shape}}, {}}, 0);
    }
  }
}

TEST(CpuElementwise, NarrowStoresRoundToNearestEvenAndKeepNan) {
  std::vector<double> values = {1.0,     1.00390625, 1.01171875, -1.00390625, 3.3895e38, 3.4e38,
                                -3.4e38, 1e-40,      -0.0,       NAN,         INFINITY,  -INFINITY,
                                1.003,   2.5,        -7.0,       0.0,         65504.0,   65519.0,
                                65520.0, -1e5,       6.1e-5,     1e-6,        2.9e-8,    3e-8};
  const Operand x = floats({1, 24}, values);
  const auto cpu = make_cpu_backend({});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const KernelCase test{
        OpKind::cast, {{"dtype", std::string(dtype_name(dtype))}}, {x}, {{dtype, {1, 24}}}, {}};
    const KernelRun run(*cpu, test);
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t want = 0;
      store_element(&want, dtype, 0, values[i]);
      EXPECT_EQ(static_cast<const uint16_t*>(run.output(0))[i], want) << values[i];
    }
  }
}

TEST(CpuElementwise, DropoutDrawsTheMaskOfTheDefinition) {
  for (const DType c : kCompute) {
    const Attrs attrs{{"p", 0.3}, {"seed", int64_t{42}}, {"site", int64_t{5}}};
    for (const int64_t width : {3, 64, 130}) {
      KernelCase test{OpKind::dropout, attrs, {}, {}, {}};
      test.inputs = {random_operand(c, {2, 9, width}), ints(DType::i64, {1}, {17}),
                     ints(DType::i64, {2}, {int64_t{1} << 40, 3}), absent()};
      test.outputs = {{c, {2, 9, width}}};
      expect_like_ref(test, 1e-7);
      test.inputs[3] = random_operand(c, {2, 9, width});
      test.in_place = {{0, 3}};
      expect_like_ref(test, 1e-7);
    }
  }
}

TEST(CpuNorm, RmsNorm) {
  for (const DType c : kCompute) {
    for (const auto& [width, group] : {std::pair<int64_t, int64_t>{96, 96}, {77, 77}, {64, 16}}) {
      const Attrs attrs{{"eps", 1e-5}};
      const int64_t rows = 150, groups = width / group;
      const Operand x = random_operand(c, {rows, width}), w = random_operand(DType::f32, {group});
      const TensorType rstd{DType::f32, {rows, groups}};
      expect_like_ref({OpKind::rmsnorm, attrs, {x, w}, {x.type, rstd}, {}});
      std::vector<double> some(static_cast<size_t>(rows * groups), 1.3);
      KernelCase grad{OpKind::rmsnorm_grad, attrs, {}, {}, {}};
      grad.inputs = {x,        w,       floats(rstd.shape, some), random_operand(c, {rows, width}),
                     absent(), absent()};
      grad.outputs = {x.type, w.type};
      expect_like_ref(grad);
      grad.inputs[4] = random_operand(c, {rows, width});
      grad.inputs[5] = random_operand(DType::f32, {group});
      grad.in_place = {{0, 4}, {1, 5}};
      expect_like_ref(grad);
    }
  }
}

TEST(CpuNorm, LayerNorm) {
  for (const DType c : kCompute) {
    for (const int64_t width : {96, 77, 5}) {
      const Attrs attrs{{"eps", 1e-5}};
      const int64_t rows = 150;
      const Operand x = random_operand(c, {rows, width}), w = random_operand(DType::f32, {width});
      const TensorType stat{DType::f32, {rows}};
      expect_like_ref({OpKind::layernorm, attrs, {x, w, w}, {x.type, stat, stat}, {}}, 4e-6);
      const std::vector<double> some(static_cast<size_t>(rows), 0.7);
      KernelCase grad{OpKind::layernorm_grad, attrs, {}, {}, {}};
      grad.inputs = {x,
                     w,
                     floats({rows}, some),
                     floats({rows}, some),
                     random_operand(c, {rows, width}),
                     absent(),
                     absent(),
                     absent()};
      grad.outputs = {x.type, w.type, w.type};
      expect_like_ref(grad);
      grad.inputs[5] = random_operand(c, {rows, width});
      grad.inputs[6] = w;
      grad.inputs[7] = w;
      grad.in_place = {{0, 5}, {1, 6}, {2, 7}};
      expect_like_ref(grad);
    }
  }
}

TEST(CpuNorm, BiasGradient) {
  for (const DType c : kCompute) {
    KernelCase test{OpKind::bias_grad, {}, {}, {{DType::f32, {77}}}, {}};
    test.inputs = {random_operand(c, {3, 501, 77}), absent()};
    expect_like_ref(test);
    test.inputs[1] = random_operand(DType::f32, {77});
    expect_like_ref(test);
  }
}

TEST(CpuRope, TableAndRotation) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 40; ++i) positions.push_back(i < 20 ? i * 100 : i % 7);
  const Operand where = ints(DType::i32, {2, 20}, positions);
  Attrs plain{{"head_dim", int64_t{24}}, {"theta", 10000.0}, {"type", std::string("default")}};
  Attrs linear = plain, llama3 = plain;
  linear.set("type", std::string("linear"));
  linear.set("factor", 4.0);
  llama3.set("type", std::string("llama3"));
  llama3.set("factor", 8.0);
  llama3.set("low_freq_factor", 1.0);
  llama3.set("high_freq_factor", 4.0);
  llama3.set("original_max_position", int64_t{8192});
  const TensorType table{DType::f32, {2, 20, 24}};
  for (const Attrs& attrs : {plain, linear, llama3}) {
    expect_like_ref({OpKind::rope_table, attrs, {where}, {table}, {}}, 1e-7);
  }
  for (const DType c : kCompute) {
    for (const bool inverse : {false, true}) {
      const Attrs attrs{{"head_dim", int64_t{24}}, {"inverse", inverse}};
      const Operand x = random_operand(c, {2, 20, 72});
      expect_like_ref(
          {OpKind::rope, attrs, {x, random_operand(DType::f32, table.shape)}, {x.type}, {{0, 0}}});
    }
  }
}

TEST(CpuEmbedding, LookupGradientAndSelection) {
  for (const DType c : kCompute) {
    const Operand ids = ints(DType::i32, {3, 50}, some_ids(150, 23));
    const TensorType y{c, {3, 50, 37}};
    expect_like_ref({OpKind::embedding, {}, {ids, random_operand(c, {23, 37})}, {y}, {}}, 0);
    KernelCase grad{
        OpKind::embedding_grad, {}, {ids, {y, {}, {}}, absent()}, {{DType::f32, {23, 37}}}, {}};
    expect_like_ref(grad);
    grad.inputs[2] = random_operand(DType::f32, {23, 37});
    expect_like_ref(grad);
    grad.in_place = {{0, 2}};
    expect_like_ref(grad);
    expect_like_ref({OpKind::select_rows,
                     {},
                     {{y, {}, {}}, ints(DType::i32, {3}, {0, 49, 7})},
                     {{c, {3, 1, 37}}},
                     {}},
                    0);
  }
}

TEST(CpuEmbedding, AnIdOutsideTheTableIsABug) {
  const KernelCase test{OpKind::embedding,
                        {},
                        {ints(DType::i32, {1, 2}, {0, 23}), random_operand(DType::f32, {23, 4})},
                        {{DType::f32, {1, 2, 4}}},
                        {}};
  const auto cpu = make_cpu_backend({});
  EXPECT_THROW(KernelRun(*cpu, test), BugError);
}

TEST(CpuLoss, CrossEntropyAndGradient) {
  for (const DType c : kCompute) {
    for (const int64_t classes : {5, 64, 5003}) {
      std::vector<int64_t> labels = some_ids(12, classes);
      labels[3] = labels[7] = -100;
      const Operand logits = random_operand(c, {2, 6, classes});
      const Operand label = ints(DType::i32, {2, 6}, labels);
      const TensorType lse{DType::f32, {2, 6}};
      expect_like_ref({OpKind::cross_entropy, {}, {logits, label}, {{DType::f32, {1}}, lse}, {}});
      const std::vector<double> some(12, std::log(static_cast<double>(classes)) + 0.1);
      expect_like_ref({OpKind::cross_entropy_grad,
                       {},
                       {logits, label, floats(lse.shape, some), floats({1}, {0.25})},
                       {logits.type},
                       {{0, 0}}});
    }
  }
}

TEST(CpuLoss, FusedWithTheProjection) {
  for (const DType c : kCompute) {
    for (const bool transpose_w : {false, true}) {
      for (const int64_t chunk : {1, 5, 12, 100}) {
        SCOPED_TRACE(testing::Message() << dtype_name(c) << " chunk " << chunk);
        const int64_t hidden = 40, classes = 333;
        std::vector<int64_t> labels = some_ids(12, classes);
        labels[0] = labels[11] = -100;
        const Attrs attrs{{"transpose_w", transpose_w}, {"chunk_rows", chunk}};
        const Operand x = random_operand(c, {2, 6, hidden});
        const Operand w = random_operand(c, weight_shape(transpose_w, hidden, classes));
        const Operand label = ints(DType::i32, {2, 6}, labels);
        const TensorType loss{DType::f32, {1}}, dw{DType::f32, w.type.shape};
        expect_like_ref({OpKind::linear_cross_entropy, attrs, {x, w, label}, {loss}, {}}, 1e-5);
        KernelCase train{OpKind::linear_cross_entropy_train, attrs, {}, {loss, x.type, dw}, {}};
        train.inputs = {x, w, label, floats({1}, {0.125}), absent()};
        expect_like_ref(train, 1e-5, c);
        train.inputs[4] = random_operand(DType::f32, dw.shape);
        expect_like_ref(train, 1e-5, c);
        train.in_place = {{2, 4}};
        expect_like_ref(train, 1e-5, c);
      }
    }
  }
}

TEST(CpuLoss, ANanLogitGivesANanLoss) {
  std::vector<double> logits(40, 0.5);
  logits[17] = NAN;
  const KernelCase test{OpKind::cross_entropy,
                        {},
                        {floats({1, 1, 40}, logits), ints(DType::i32, {1, 1}, {3})},
                        {{DType::f32, {1}}, {DType::f32, {1, 1}}},
                        {}};
  const auto cpu = make_cpu_backend({});
  EXPECT_TRUE(std::isnan(KernelRun(*cpu, test).value(0, 0)));
}

}  // namespace
}  // namespace weft::cpu
