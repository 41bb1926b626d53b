// Known failures of other trainers with experts, and values worked out by hand, as tests of the
// kernels of ref and cpu.
#include <cmath>

#include "tests/conformance/on_backends.h"

namespace weft::test {
namespace {

HostTensor f32(Shape shape, const std::vector<double>& values) {
  return {{DType::f32, std::move(shape)}, values};
}
HostTensor i32(Shape shape, const std::vector<double>& values) {
  return {{DType::i32, std::move(shape)}, values};
}

constexpr size_t kLogits = 0, kWeights = 1, kSlots = 2, kChosen = 3, kCounts = 4, kStats = 5;

class Experts : public OnBackends {
 protected:
  Attrs attrs(int64_t top_k, bool normalize, int64_t capacity = 0,
              const std::string& score = "softmax") {
    return {{"top_k", top_k}, {"score", score}, {"normalize", normalize}, {"capacity", capacity}};
  }
  /// Routes tokens of one feature each, 1, so that the router's weight [E] is the logits.
  std::vector<HostTensor> route(const Attrs& attrs, const std::vector<double>& lengths, int64_t S,
                                const std::vector<double>& logits,
                                const HostTensor& bias = HostTensor()) {
    const auto B = static_cast<int64_t>(lengths.size()), E = static_cast<int64_t>(logits.size());
    HostTensor x({DType::f32, {B, S, 1}});
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, 1);
    return run(OpKind::router, attrs,
               {x, f32({E, 1}, logits), i32({B}, lengths), bias, HostTensor()});
  }
  void expect_near(const HostTensor& got, const std::vector<double>& values, double error) {
    ASSERT_EQ(got.size(), static_cast<int64_t>(values.size()));
    for (int64_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got.get(i), values[static_cast<size_t>(i)], error) << "element " << i;
    }
  }
};
WEFT_ON_BACKENDS(Experts);

TEST_P(Experts, B33_WeightsAreDividedByTheirSumWhenTheModelSaysSo) {
  const std::vector<double> logits = {2, 1, 0, -1};
  const auto divided = route(attrs(2, true), {1}, 1, logits);
  const auto plain = route(attrs(2, false), {1}, 1, logits);
  expect_near(divided[kLogits], logits, 1e-6);
  expect_near(divided[kWeights], {0.731058579, 0.268941421}, 1e-6);
  expect_near(plain[kWeights], {0.643914260, 0.236882818}, 1e-6);
  EXPECT_EQ(plain[kChosen].values(), (std::vector<double>{0, 1}));
  // Experts that return constants reveal the weights.
  for (const auto& routed : {divided, plain}) {
    const auto y = run(OpKind::combine, attrs(2, true),
                       {f32({1, 2, 1}, {10, 100}), routed[kSlots], routed[kCounts],
                        routed[kWeights], f32({1, 1, 1}, {1000})});
    EXPECT_NEAR(y[0].get(0), 1000 + 10 * routed[kWeights].get(0) + 100 * routed[kWeights].get(1),
                1e-4);
  }
}

TEST_P(Experts, B33_ARouterOfZerosChoosesTheFirstExperts) {
  for (const char* score : {"softmax", "sigmoid"}) {
    const auto out = route(attrs(3, true, 0, score), {4, 2}, 4, std::vector<double>(8, 0.0));
    for (int64_t i = 0; i < out[kChosen].size(); ++i) EXPECT_EQ(out[kChosen].get(i), i % 3);
    for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(out[kWeights].get(i), 1.0 / 3, 1e-7);
    // All equal: the balance loss is top_k, the z loss (log 8)^2.
    EXPECT_NEAR(out[kStats].get(8 + 1), 3, 1e-6);
    EXPECT_NEAR(out[kStats].get(8 + 2), std::log(8.0) * std::log(8.0), 1e-6);
  }
}

// The logits differ by 1e-3 near 3, where bf16 knows steps of 1/64.
TEST_P(Experts, B33_ABf16RunPicksTheExpertsOfAnF32Run) {
  const std::vector<double> order = {2, 5, 1, 7, 0, 3, 6, 4};
  std::vector<double> w;
  for (const double rank : order) w.push_back(3 + 1e-3 * rank);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto out = run(OpKind::router, attrs(3, true),
                         {HostTensor({dtype, {1, 1, 1}}, {1}), f32({8, 1}, w), i32({1}, {1}),
                          HostTensor(), HostTensor()});
    EXPECT_EQ(out[kChosen].values(), (std::vector<double>{3, 6, 1})) << dtype_name(dtype);
  }
}

TEST_P(Experts, B35_WhatIsBeyondTheCapacityIsDroppedAndPassesThrough) {
  // 16 tokens that all want experts 0 and 1; 16 x 2 / 4 x 1 = 8 rows each.
  const Attrs routing = attrs(2, true, 8);
  const auto out = route(routing, {16}, 16, {2, 1, 0, 0});
  EXPECT_EQ(out[kCounts].values(), (std::vector<double>{8, 8, 0, 0}));
  EXPECT_EQ(out[kStats].get(0), 16);  // assignments, with those dropped
  EXPECT_EQ(out[kStats].get(4), 16);
  HostTensor rows({DType::f32, {4, 1, 8, 1}}), residual({DType::f32, {1, 16, 1}});
  for (int64_t i = 0; i < rows.size(); ++i) rows.set(i, 1);
  for (int64_t i = 0; i < residual.size(); ++i) residual.set(i, static_cast<double>(i));
  const auto y =
      run(OpKind::combine, routing, {rows, out[kSlots], out[kCounts], out[kWeights], residual});
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(y[0].get(i), static_cast<double>(i) + (i < 8 ? 1 : 0), 1e-6) << "token " << i;
  }
}

TEST_P(Experts, B35_FewTokensAndShortSequences) {
  // Three tokens, eight experts, room for all three.
  const auto few = route(attrs(2, true, 3), {3}, 3, std::vector<double>(8, 0.0));
  EXPECT_EQ(few[kCounts].values(), (std::vector<double>{3, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(few[kStats].get(8), 0);
  // Sequences of 16, 5 and no tokens share one program.
  const auto mixed = route(attrs(2, true, 8), {16, 5, 0}, 16, {2, 1, 0, 0});
  EXPECT_EQ(mixed[kCounts].values(), (std::vector<double>{8, 8, 0, 0, 5, 5, 0, 0, 0, 0, 0, 0}));
  for (const int64_t b : {0, 1, 2}) EXPECT_EQ(mixed[kStats].get(b * 8 + 4), b == 0 ? 16 : 0);
  for (const int64_t b : {0, 1, 2})
    EXPECT_EQ(mixed[kStats].get(b * 8 + 7), b == 0 ? 16 : b == 1 ? 5 : 0);
  for (int64_t i = 16 * 2 + 5 * 2; i < 3 * 16 * 2; ++i) {
    EXPECT_EQ(mixed[kSlots].get(i), -1);
    EXPECT_EQ(mixed[kWeights].get(i), 0);
  }
}

// Sigmoid scores: the bias chooses, the score weighs; groups are ranked by their two best.
TEST_P(Experts, ABiasChoosesAndTheScoreWeighs) {
  const std::vector<double> logits = {1, 0, -1, 2};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto out = route(attrs(2, false, 0, "sigmoid"), {1}, 1, logits, f32({4}, {0, 0, 1, 0}));
  EXPECT_EQ(out[kChosen].values(), (std::vector<double>{2, 3}));
  expect_near(out[kWeights], {sigmoid(-1), sigmoid(2)}, 1e-6);
  Attrs groups = attrs(2, true, 0, "sigmoid");
  groups.set("groups", int64_t{2});
  groups.set("top_groups", int64_t{1});
  groups.set("scale", 2.5);
  // 0.88 + 0.12 against 0.73 + 0.62: the best expert's group loses.
  const auto grouped = route(groups, {1}, 1, {2, -2, 1, 0.5});
  EXPECT_EQ(grouped[kChosen].values(), (std::vector<double>{2, 3}));
  const double sum = sigmoid(1) + sigmoid(0.5);
  expect_near(grouped[kWeights], {2.5 * sigmoid(1) / sum, 2.5 * sigmoid(0.5) / sum}, 1e-6);
}

TEST_P(Experts, ASkippedStepLeavesTheBias) {
  const HostTensor bias = f32({3}, {0.5, -0.5, 0}), stats = f32({7}, {1, 4, 7, 9, 9, 9, 9});
  const auto moved =
      run(OpKind::router_bias_update, {{"rate", 0.25}}, {bias, stats, i32({1}, {1})});
  EXPECT_EQ(moved[0].values(), (std::vector<double>{0.75, -0.5, -0.25}));
  const auto kept = run(OpKind::router_bias_update, {{"rate", 0.25}}, {bias, stats, i32({1}, {0})});
  EXPECT_EQ(kept[0].values(), bias.values());
}

}  // namespace
}  // namespace weft::test
