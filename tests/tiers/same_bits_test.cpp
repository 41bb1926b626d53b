// A tier changes no bit: runs with the classes of a step in other tiers against the run of the same
// layout that has everything on the device. The whole product is full_product.cpp.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/tiers/placements.h"

namespace weft::test {
namespace {

constexpr int64_t kSteps = 6;

/// Every class in every tier alone, all of them together, and mixtures; the rest of the choices go
/// round.
const std::vector<std::string> kClasses = {"hddd", "nddd", "sddd", "hhdd", "nndd", "dsdd",
                                           "ddhd", "hdnd", "ddsd", "dddh", "dddn", "ddds",
                                           "hhhh", "nnnn", "ssss", "nhsd", "shnh", "dnhs"};

Placement nth_placement(size_t index) {
  Placement placement;
  placement.classes = kClasses[index % kClasses.size()];
  placement.update_on_host = index % 2 == 0;
  placement.late_update = index / 2 % 2 == 0;
  // Pieces of a few rows, of odd sizes, of several tensors at once, and the usual ones.
  const std::optional<int64_t> windows[] = {{}, int64_t{1}, 300'001, 98'304, 1 << 20};
  placement.prefetch = windows[index % 5];
  return placement;
}

struct Case {
  TierModel model;
  Layout layout;
  size_t first = 0;  // of the placements that are tried
  size_t count = 0;
};
std::string case_name(const Case& c) {
  return tier_model_name(c.model) + "_" + layout_name(c.layout);
}
void PrintTo(const Case& c, std::ostream* out) { *out << case_name(c); }

/// One rank tries everything, the other layouts go round.
std::vector<Case> cases() {
  std::vector<Case> all;
  size_t next = 0;
  const TierModel models[] = {
      {}, {.family = "gpt2"}, {.compute = "fp32"}, {.family = "gpt2", .optimizer = "sgd"}};
  for (const TierModel& model : models) {
    const bool first = &model == models;
    for (const Layout& layout : tier_layouts()) {
      const size_t count = layout.world() == 1 && first ? kClasses.size() : first ? 5 : 2;
      all.push_back({model, layout, next, count});
      next += count;
    }
  }
  for (const char* family : {"moe", "moe_capacity"}) {
    for (const Layout& layout : expert_tier_layouts()) {
      all.push_back({{.family = family}, layout, next, 3});
      next += 3;
    }
  }
  return all;
}

class SameBits : public ::testing::TestWithParam<Case> {};

TEST_P(SameBits, AsOnTheDevice) {
  const Case& c = GetParam();
  const ColdFolder cold;
  const LayoutJob job = tier_job(c.model, kSteps);
  const LayoutResult device = run_layout(job, c.layout);
  for (size_t i = 0; i < c.count; ++i) {
    const Placement placement = nth_placement(c.first + i);
    SCOPED_TRACE(placement_name(placement));
    const LayoutResult got = run_layout(placed(job, placement, {cold.path()}), c.layout);
    expect_same_run(got, device);
    expect_moves(got, placement);
  }
  EXPECT_EQ(cold.files(), 0) << "files of the cold tier stay behind";
}

INSTANTIATE_TEST_SUITE_P(All, SameBits, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return case_name(tested.param); });

TEST(SameBitsCases, TrainingMovesWeightsAndClips) {
  // What the suite compares must not be constant.
  const LayoutResult run = run_layout(tier_job({}, kSteps), {});
  EXPECT_FALSE(same_bits(run.initial, run.trained));
  EXPECT_FALSE(same_bits(run.trained, run_layout(tier_job({}, kSteps - 1), {}).trained));
  EXPECT_GT(run.norms.front(), 0.5);
  EXPECT_LT(run.norms.back(), 2 * run.norms.front());
}

}  // namespace
}  // namespace weft::test
