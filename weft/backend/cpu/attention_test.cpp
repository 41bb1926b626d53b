// Attention against ref: several blocks, grouped heads, windows, packed documents, odd head sizes.
#include "weft/backend/cpu/kernel_test_util.h"

namespace weft::cpu {
namespace {

struct Setting {
  int64_t sequences, positions, heads, kv_heads, head_dim, window;
  bool segments;
};

constexpr DType kComputeDTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr Setting kSettings[] = {
    {1, 1, 1, 1, 8, 0, false},     {2, 64, 4, 4, 32, 0, false},   {1, 97, 2, 1, 64, 0, false},
    {1, 200, 2, 2, 20, 0, false},  {2, 250, 4, 2, 16, 0, true},   {1, 300, 2, 1, 24, 37, false},
    {1, 300, 3, 3, 40, 130, true}, {1, 193, 6, 2, 128, 2, false}, {3, 130, 2, 2, 10, 200, true},
};

KernelCase forward_case(const Setting& s, DType c) {
  const Attrs attrs{{"head_dim", s.head_dim},
                    {"num_heads", s.heads},
                    {"num_kv_heads", s.kv_heads},
                    {"scale", 0.3},
                    {"window", s.window}};
  const Shape q{s.sequences, s.positions, s.heads * s.head_dim};
  const Shape kv{s.sequences, s.positions, s.kv_heads * s.head_dim};
  Operand segments = absent();
  if (s.segments) {
    std::vector<int64_t> ids;
    for (int64_t b = 0; b < s.sequences; ++b) {
      for (int64_t i = 0; i < s.positions; ++i) ids.push_back((i + 13 * b) / 45);
    }
    segments = ints(DType::i32, {s.sequences, s.positions}, ids);
  }
  return {OpKind::attention,
          attrs,
          {random_operand(c, q), random_operand(c, kv), random_operand(c, kv), segments},
          {{c, q}, {DType::f32, {s.sequences, s.heads, s.positions}}},
          {}};
}

TEST(CpuAttention, ForwardAgreesWithRef) {
  for (const DType c : {DType::f32, DType::bf16}) {
    for (const Setting& s : kSettings) {
      SCOPED_TRACE(testing::Message() << dtype_name(c) << " S " << s.positions << " D "
                                      << s.head_dim << " window " << s.window);
      expect_like_ref(forward_case(s, c));
    }
  }
}

TEST(CpuAttention, BackwardAgreesWithRef) {
  for (const DType c : {DType::f32, DType::bf16}) {
    for (const Setting& s : kSettings) {
      SCOPED_TRACE(testing::Message() << dtype_name(c) << " S " << s.positions << " D "
                                      << s.head_dim << " window " << s.window);
      const KernelCase forward = forward_case(s, c);
      const auto ref = make_ref_backend({});
      const KernelRun run(*ref, forward);
      KernelCase grad{OpKind::attention_grad, forward.attrs, forward.inputs, {}, {}};
      for (size_t i = 0; i < 2; ++i) {
        const TensorType& type = forward.outputs[i];
        Operand operand{type, {}, {}};
        for (int64_t e = 0; e < type.elements(); ++e) operand.values.push_back(run.value(i, e));
        grad.inputs.push_back(operand);
      }
      grad.inputs.push_back(random_operand(c, forward.outputs[0].shape));
      for (size_t i = 0; i < 3; ++i) grad.outputs.push_back(forward.inputs[i].type);
      expect_like_ref(grad, 1e-5);
    }
  }
}

TEST(CpuAttention, ANanQueryGivesNanValuesOfItsOwn) {
  for (const DType c : kComputeDTypes) {
    const int64_t positions = 70, bad = 41;
    std::vector<double> q(static_cast<size_t>(positions * 8), 0.25);
    q[bad * 8 + 3] = NAN;
    KernelCase test = forward_case({1, positions, 1, 1, 8, 0, false}, c);
    test.inputs[0] = floats({1, positions, 8}, q, c);
    const auto cpu = make_cpu_backend({});
    const KernelRun run(*cpu, test);
    for (int64_t i = 0; i < positions; ++i) {
      EXPECT_EQ(std::isnan(run.value(0, i * 8)), i == bad) << "query " << i;
    }
  }
}

TEST(CpuAttention, AnyScaleIsTaken) {
  for (const DType c : kComputeDTypes) {
    for (const double scale : {-0.5, 0.0}) {
      KernelCase test = forward_case({1, 150, 2, 1, 16, 0, false}, c);
      test.attrs.set("scale", scale);
      expect_like_ref(test);
    }
  }
}

TEST(CpuAttention, EqualScoresGiveTheMeanOfTheVisibleValues) {
  const int64_t positions = 150;
  std::vector<double> values;
  for (int64_t i = 0; i < positions * 4; ++i) values.push_back(static_cast<double>(i / 4));
  const Operand zero = floats({1, positions, 4}, std::vector<double>(values.size(), 0.0));
  const Attrs attrs{{"head_dim", int64_t{4}},
                    {"num_heads", int64_t{1}},
                    {"num_kv_heads", int64_t{1}},
                    {"scale", 1.0},
                    {"window", int64_t{0}}};
  const KernelCase test{OpKind::attention,
                        attrs,
                        {zero, zero, floats({1, positions, 4}, values), absent()},
                        {zero.type, {DType::f32, {1, 1, positions}}},
                        {}};
  const auto cpu = make_cpu_backend({});
  const KernelRun run(*cpu, test);
  for (int64_t i = 0; i < positions; ++i) {
    EXPECT_NEAR(run.value(0, i * 4), static_cast<double>(i) / 2, 1e-4);
    EXPECT_NEAR(run.value(1, i), std::log(static_cast<double>(i + 1)), 1e-5);
  }
}

}  // namespace
}  // namespace weft::cpu
