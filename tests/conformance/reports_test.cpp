// Known failures of other trainers, as tests of the kernels of ref and cpu.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/conformance/on_backends.h"
#include "weft/base/rng.h"

namespace weft::test {
namespace {

TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }
HostTensor flag(int value) { return {{DType::i32, {1}}, {static_cast<double>(value)}}; }

class Reports : public OnBackends {};
WEFT_ON_BACKENDS(Reports);

Attrs adamw_attrs(double beta1, double beta2, double eps, double weight_decay) {
  return {{"beta1", beta1},
          {"beta2", beta2},
          {"eps", eps},
          {"weight_decay", weight_decay},
          {"copy_dtype", std::string("none")}};
}

HostTensor hyper(double lr, double beta1, double beta2, int step) {
  return {f32({3}), {lr, 1 - std::pow(beta1, step), 1 - std::pow(beta2, step)}};
}

/// Gradients of both signs and of very different size.
double gradient(int64_t i) { return (i % 2 == 0 ? 1 : -1) * std::pow(10.0, i % 5 - 2.0); }

TEST_P(Reports, B58_FirstAdamWStepIsLrTimesSign) {
  for (const double eps : {1e-8, 1e-15}) {
    for (const int64_t size : {1, 7, 8, 15, 16, 17, 1023}) {
      HostTensor w(f32({size})), g(f32({size}));
      const HostTensor zero(f32({size}));
      for (int64_t i = 0; i < size; ++i) w.set(i, 0.5), g.set(i, gradient(i));
      const auto out =
          run(OpKind::adamw, adamw_attrs(0.9, 0.95, eps, 0),
              {w, zero, zero, g, hyper(0.01, 0.9, 0.95, 1), HostTensor(f32({1}), {1}), flag(1)});
      for (int64_t i = 0; i < size; ++i) {
        EXPECT_NEAR(out[0].get(i) - 0.5, -0.01 * (g.get(i) > 0 ? 1 : -1), 1e-7) << size << " " << i;
      }
    }
  }
}

TEST_P(Reports, B58_DecayIsDecoupledAndFirst) {
  // A zero gradient leaves only the decay: w (1 - 0.1 * 0.1).
  const HostTensor w(f32({3}), {1, -2, 0.5}), zero(f32({3}));
  const auto out =
      run(OpKind::adamw, adamw_attrs(0.9, 0.95, 1e-8, 0.1),
          {w, zero, zero, zero, hyper(0.1, 0.9, 0.95, 1), HostTensor(f32({1}), {1}), flag(1)});
  EXPECT_FLOAT_EQ(static_cast<float>(out[0].get(0)), 0.99f);
  EXPECT_FLOAT_EQ(static_cast<float>(out[0].get(1)), -1.98f);
  EXPECT_FLOAT_EQ(static_cast<float>(out[0].get(2)), 0.495f);
  EXPECT_EQ(out[1].values(), zero.values());  // coupled decay would enter the moments
  EXPECT_EQ(out[2].values(), zero.values());
}

TEST_P(Reports, B58_HundredStepsFollowTheFormulaInDouble) {
  const int64_t size = 17;
  const double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, lr = 1e-2, decay = 0.1;
  HostTensor w(f32({size})), m(f32({size})), v(f32({size})), g(f32({size}));
  std::vector<double> w64(size), m64(size), v64(size);
  for (int64_t i = 0; i < size; ++i) w.set(i, w64[static_cast<size_t>(i)] = 0.125 * (1.0 + i));
  for (int step = 1; step <= 100; ++step) {
    for (int64_t i = 0; i < size; ++i) {
      g.set(i, RngStream(3, "g").normal(static_cast<uint64_t>(step * size + i)));
      const auto at = static_cast<size_t>(i);
      m64[at] = beta1 * m64[at] + (1 - beta1) * g.get(i);
      v64[at] = beta2 * v64[at] + (1 - beta2) * g.get(i) * g.get(i);
      const double m_hat = m64[at] / (1 - std::pow(beta1, step));
      const double v_hat = v64[at] / (1 - std::pow(beta2, step));
      w64[at] -= lr * decay * w64[at];
      w64[at] -= lr * m_hat / (std::sqrt(v_hat) + eps);
    }
    const auto out =
        run(OpKind::adamw, adamw_attrs(beta1, beta2, eps, decay),
            {w, m, v, g, hyper(lr, beta1, beta2, step), HostTensor(f32({1}), {1}), flag(1)});
    w = out[0], m = out[1], v = out[2];
  }
  for (int64_t i = 0; i < size; ++i) EXPECT_NEAR(w.get(i), w64[static_cast<size_t>(i)], 2e-6);
}

TEST_P(Reports, B54_SquaresOfLargeAndSmallGradientsAreSummedInDouble) {
  // 5000^2 overflows f16, 1e25^2 overflows f32, (1e-8)^2 vanishes in f16, (1e-30)^2 in f32.
  for (const double value : {5000.0, 300.0, 1e25, 1e-8, 1e-30}) {
    HostTensor g(f32({1023}));
    for (int64_t i = 0; i < g.size(); ++i) g.set(i, value);
    const auto sum = run(OpKind::sum_squares, {}, {g});
    const double expected = 1023 * g.get(0) * g.get(0);
    EXPECT_NEAR(sum[0].get(0) / expected, 1, 1e-12) << value;

    const auto verdict =
        run(OpKind::verdict, {{"max_norm", 1.0}}, {HostTensor(f32({1}), {1}), sum[0]});
    EXPECT_NEAR(verdict[0].get(0) / std::sqrt(expected), 1, 1e-6) << value;
    EXPECT_GT(verdict[1].get(0), 0) << value;  // a clipped update is not zero
    EXPECT_EQ(verdict[2].get(0), 1) << value;
  }
}

TEST_P(Reports, B54_LossScaleIsTakenOffBeforeTheVerdict) {
  // Gradients near 300 under a loss scale of 65536: finite, so the step counts.
  HostTensor g(f32({257}));
  for (int64_t i = 0; i < g.size(); ++i) g.set(i, 300.0 * 65536);
  const auto sum = run(OpKind::sum_squares, {}, {g});
  const auto verdict =
      run(OpKind::verdict, {{"max_norm", 1.0}}, {HostTensor(f32({1}), {1.0 / 65536}), sum[0]});
  const double norm = 300 * std::sqrt(257.0);
  EXPECT_NEAR(verdict[0].get(0), norm, 1e-3 * norm);
  EXPECT_NEAR(verdict[1].get(0), 1.0 / 65536 / norm, 1e-6 / 65536 / norm);
  EXPECT_EQ(verdict[2].get(0), 1);
}

TEST_P(Reports, B54_OneInfiniteGradientSkipsTheStep) {
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    HostTensor g(f32({33}));
    g.set(32, bad);
    const auto sum = run(OpKind::sum_squares, {}, {g});
    const auto verdict =
        run(OpKind::verdict, {{"max_norm", 1.0}}, {HostTensor(f32({1}), {1}), sum[0]});
    EXPECT_EQ(verdict[1].get(0), 0);
    EXPECT_EQ(verdict[2].get(0), 0);
  }
}

// What a moment is rounded to belongs to (seed, step, tensor, element), not to the piece.
TEST_P(Reports, RoundedMomentsDoNotDependOnThePiece) {
  const int64_t rows = 12, columns = 35;
  const auto update = [&](const Shape& shape, const std::string& elements,
                          const std::vector<int64_t>& numbers, int64_t begin, int64_t size,
                          double step) {
    Attrs attrs = adamw_attrs(0.9, 0.95, 1e-8, 0.1);
    attrs.set("seed", int64_t{3});
    attrs.set("site", int64_t{8});
    attrs.set("elements", elements);
    if (size >= 0) attrs.set("begin", begin), attrs.set("size", size);
    HostTensor w(f32(shape)), g(f32(shape));
    HostTensor m({DType::bf16, shape}), v({DType::bf16, shape});
    for (int64_t i = 0; i < w.size(); ++i) {
      g.set(i, gradient(numbers[static_cast<size_t>(i)]));
      m.set(i, 0.5);
      v.set(i, 0.25);
    }
    return run(OpKind::adamw, attrs,
               {w, m, v, g, hyper(0.01, 0.9, 0.95, 2), HostTensor(f32({1}), {1}), flag(1),
                HostTensor({DType::i64, {1}}, {step})});
  };
  std::vector<int64_t> all(rows * columns);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const auto whole = update({rows, columns}, "12,35;0,0;12,35;0", all, 0, -1, 5);
  const auto other = update({rows, columns}, "12,35;0,0;12,35;0", all, 0, -1, 6);
  EXPECT_NE(whole[1].values(), other[1].values());
  EXPECT_EQ(whole[0].values(), other[0].values());  // the weights use what was not rounded
  const auto expect_piece = [&](const std::vector<HostTensor>& piece,
                                const std::vector<int64_t>& numbers, int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) {
      const int64_t number = numbers[static_cast<size_t>(i)];
      ASSERT_EQ(piece[1].get(i), whole[1].get(number)) << number;
      ASSERT_EQ(piece[2].get(i), whole[2].get(number)) << number;
    }
  };
  std::vector<int64_t> box;
  for (int64_t r = 2; r < 9; ++r) {
    for (int64_t c = 3; c < 20; ++c) box.push_back(r * columns + c);
  }
  expect_piece(update({7, 17}, "12,35;2,3;7,17;0", box, 0, -1, 5), box, 0, 119);
  const std::vector<int64_t> range(box.begin() + 30, box.begin() + 100);
  expect_piece(update({70}, "12,35;2,3;7,17;30", range, 0, -1, 5), range, 0, 70);
  expect_piece(update({rows, columns}, "12,35;0,0;12,35;0", all, 101, 64, 5), all, 101, 64);
}

TEST_P(Reports, RoundedMomentsAreRightOnAverage) {
  // 1 + 2^-10 lies an eighth of the way from 1 to its neighbour 1 + 2^-7.
  const int64_t size = 40000;
  Attrs attrs = {{"momentum", 0.0},
                 {"weight_decay", 0.0},
                 {"seed", int64_t{1}},
                 {"site", int64_t{2}},
                 {"elements", std::string("40000;0;40000;0")}};
  HostTensor w(f32({size})), g(f32({size})), m({DType::bf16, {size}});
  for (int64_t i = 0; i < size; ++i) g.set(i, i % 2 == 0 ? 1 + 0x1p-10 : -1 - 0x1p-10);
  const auto out = run(OpKind::sgd, attrs,
                       {w, g, m, hyper(0.1, 0.9, 0.95, 1), HostTensor(f32({1}), {1}), flag(1),
                        HostTensor({DType::i64, {1}}, {4})});
  int64_t up = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double value = std::abs(out[1].get(i));
    EXPECT_EQ(out[1].get(i) > 0, i % 2 == 0);
    ASSERT_TRUE(value == 1 || value == 1 + 0x1p-7) << value;
    up += value > 1 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(up) / size, 0.125, 5 * std::sqrt(0.125 * 0.875 / size));
}

TEST_P(Reports, B69_RopeAngleAtALatePosition) {
  const auto table = run(OpKind::rope_table,
                         {{"head_dim", int64_t{32}},
                          {"theta", 10000.0},
                          {"type", std::string("default")},
                          {"wide", GetParam() == std::string("ref")}},
                         {HostTensor({DType::i32, {1, 2}}, {0, 1857})});
  const double angle = 1857 * std::pow(10000.0, -2.0 / 32);
  EXPECT_NEAR(angle, 1044.2678, 1e-4);
  const int64_t row = 32, pair = 1;
  EXPECT_NEAR(table[0].get(row + pair), 0.3067, 1e-4);  // 16-bit angles give -0.9912
  EXPECT_NEAR(table[0].get(row + pair), std::cos(angle), 1e-4);
  EXPECT_NEAR(table[0].get(row + 16 + pair), std::sin(angle), 1e-4);
  EXPECT_EQ(table[0].get(pair), 1);
  EXPECT_EQ(table[0].get(16 + pair), 0);
}

// The mask belongs to (seed, step, site, sample, position, feature): the same bits everywhere.
TEST_P(Reports, DropoutMaskIsThatOfTheStream) {
  const int64_t B = 3, S = 11, H = 67;
  const double p = 0.1;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    HostTensor x({dtype, {B, S, H}});
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, 1);
    const auto y = run(OpKind::dropout, {{"p", p}, {"seed", int64_t{9}}, {"site", int64_t{4}}},
                       {x, HostTensor({DType::i64, {1}}, {12}),
                        HostTensor({DType::i64, {B}}, {5, 5000000000, 0}), HostTensor()});
    const int64_t samples[] = {5, 5000000000, 0};
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t b = i / (S * H), s = i / H % S, h = i % H;
      const PhiloxBlock block =
          dropout_block(dropout_key(9, 12, 4), static_cast<uint64_t>(samples[b]),
                        static_cast<uint32_t>(s), static_cast<uint32_t>(h / 4));
      const bool dropped = (block[static_cast<size_t>(h % 4)] >> 8) < dropout_threshold(p);
      ASSERT_EQ(y[0].get(i) == 0, dropped) << "element " << i;
      if (!dropped) {
        ASSERT_NEAR(y[0].get(i), 1 / (1 - p), dtype == DType::f32 ? 2e-7 : 4e-3);
      }
    }
  }
}

TEST_P(Reports, DropoutDropsTheAskedFraction) {
  const int64_t B = 4, S = 64, H = 256;
  HostTensor x(f32({B, S, H}));
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, 1);
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const auto y = run(OpKind::dropout, {{"p", p}, {"seed", int64_t{1}}, {"site", int64_t{2}}},
                       {x, HostTensor({DType::i64, {1}}, {3}),
                        HostTensor({DType::i64, {B}}, {0, 1, 2, 3}), HostTensor()});
    double dropped = 0;
    for (int64_t i = 0; i < x.size(); ++i) dropped += y[0].get(i) == 0 ? 1 : 0;
    const double n = static_cast<double>(x.size());
    EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n)) << p;
  }
}

TEST_P(Reports, DropoutMasksOfStepsSitesAndSamplesDiffer) {
  HostTensor x(f32({1, 4, 64}));
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, 1);
  const auto mask = [&](int64_t seed, double step, int64_t site, double sample) {
    return run(OpKind::dropout, {{"p", 0.5}, {"seed", seed}, {"site", site}},
               {x, HostTensor({DType::i64, {1}}, {step}), HostTensor({DType::i64, {1}}, {sample}),
                HostTensor()})[0]
        .values();
  };
  const auto base = mask(1, 2, 3, 4);
  EXPECT_EQ(base, mask(1, 2, 3, 4));
  EXPECT_NE(base, mask(2, 2, 3, 4));
  EXPECT_NE(base, mask(1, 3, 3, 4));
  EXPECT_NE(base, mask(1, 2, 4, 4));
  EXPECT_NE(base, mask(1, 2, 3, 5));
}

}  // namespace
}  // namespace weft::test
