// Every placement of every class in every layout, 50 steps: hours of work, no part of the usual
// tests. Build and run weft_tiers_full; --gtest_filter picks models and layouts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/tiers/placements.h"

namespace weft::test {
namespace {

constexpr int64_t kSteps = 50;

struct Product {
  TierModel model;
  Layout layout;
};
std::string product_name(const Product& p) {
  return tier_model_name(p.model) + "_" + layout_name(p.layout);
}
void PrintTo(const Product& p, std::ostream* out) { *out << product_name(p); }

std::vector<Product> products() {
  std::vector<Product> all;
  for (const TierModel& model :
       {TierModel{}, TierModel{.family = "gpt2"}, TierModel{.compute = "fp32"},
        TierModel{.family = "gpt2", .optimizer = "sgd"}}) {
    for (const Layout& layout : tier_layouts()) all.push_back({model, layout});
  }
  return all;
}

std::vector<Placement> placements() {
  const std::string tiers = "dhns";
  const std::optional<int64_t> windows[] = {{}, int64_t{1}, 300'001, 98'304, 1 << 20};
  std::vector<Placement> all;
  for (const char optimizer : tiers) {
    for (const char weights : tiers) {
      for (const char gradients : tiers) {
        for (const char activations : tiers) {
          for (const bool on_host : {false, true}) {
            for (const bool late : {false, true}) {
              all.push_back({.classes = {optimizer, weights, gradients, activations},
                             .update_on_host = on_host,
                             .late_update = late,
                             .prefetch = windows[all.size() % 5]});
            }
          }
        }
      }
    }
  }
  return all;
}

class FullTiers : public ::testing::TestWithParam<Product> {};

TEST_P(FullTiers, EveryPlacement) {
  const ColdFolder cold;
  const LayoutJob job = tier_job(GetParam().model, kSteps);
  const LayoutResult device = run_layout(job, GetParam().layout);
  for (const Placement& placement : placements()) {
    SCOPED_TRACE(placement_name(placement));
    const LayoutResult got = run_layout(placed(job, placement, {cold.path()}), GetParam().layout);
    expect_same_run(got, device);
    expect_moves(got, placement);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FullTiers, ::testing::ValuesIn(products()),
                         [](const auto& tested) { return product_name(tested.param); });

}  // namespace
}  // namespace weft::test
