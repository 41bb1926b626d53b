// Damage to plans with tiers is noticed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tiers/placements.h"
#include "weft/base/error.h"
#include "weft/ops/op_kind.h"

namespace weft::test {
namespace {

/// Optimizer states on the disk, updated on the host in several pieces per tensor.
class TierVerifier : public ::testing::Test {
 protected:
  Plan plan() const {
    const Placement placement{.classes = "nndd", .update_on_host = true, .prefetch = 1};
    return plan_layout(placed(tier_job({}, 1), placement, {cold_.path()}), {})[0];
  }

  static std::string refusal(const Plan& plan) {
    try {
      verify_plan(plan);
    } catch (const BugError& error) {
      return error.what();
    }
    return "";
  }

  static std::vector<PlanStep>& steps(Plan& plan) { return plan.programs[0].steps; }
  static bool is_store(const PlanStep& step) { return step.op == OpKind::store; }

  const ColdFolder cold_;
};

TEST_F(TierVerifier, AcceptsThePlan) {
  const Plan good = plan();
  EXPECT_EQ(refusal(good), "");
  int host_updates = 0;
  for (const PlanStep& step : good.programs[0].steps) host_updates += step.lane == Lane::host;
  EXPECT_GT(host_updates, 10);
}

TEST_F(TierVerifier, ComputeOnHostMemory) {
  Plan bad = plan();
  const auto update = std::find_if(steps(bad).begin(), steps(bad).end(), [](const PlanStep& step) {
    return step.lane == Lane::host && !op_def(step.op).transfer;
  });
  ASSERT_NE(update, steps(bad).end());
  update->lane = Lane::compute;
  EXPECT_NE(refusal(bad).find("computes on host memory"), std::string::npos) << refusal(bad);
}

TEST_F(TierVerifier, HostStepOnDeviceMemory) {
  Plan bad = plan();
  const auto node = std::find_if(steps(bad).begin(), steps(bad).end(), [](const PlanStep& step) {
    return step.lane == Lane::compute && !op_def(step.op).transfer;
  });
  ASSERT_NE(node, steps(bad).end());
  node->lane = Lane::host;
  EXPECT_NE(refusal(bad).find("computes on device memory"), std::string::npos) << refusal(bad);
}

TEST_F(TierVerifier, AStoreWaitsForWhatItStores) {
  // The first store that waits for a step of the host; those behind it on the lane need not.
  const Plan good = plan();
  const std::vector<PlanStep>& all = good.programs[0].steps;
  int tried = 0;
  int32_t known = -1;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].lane != Lane::nvme_write) continue;
    int32_t latest = -1;
    for (const int32_t wait : all[i].waits) {
      if (all[static_cast<size_t>(wait)].lane == Lane::host) latest = std::max(latest, wait);
    }
    if (latest <= known) continue;
    known = latest;
    Plan bad = good;
    std::erase(bad.programs[0].steps[i].waits, latest);
    EXPECT_NE(refusal(bad).find("no wait orders them"), std::string::npos) << "step " << i;
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

TEST_F(TierVerifier, ALoadWaitsForTheStoreOfItsPiece) {
  // In a late update the passes load the weights that the update has stored right before.
  const Placement placement{
      .classes = "nndd", .update_on_host = true, .late_update = true, .prefetch = 1};
  const Plan good = plan_layout(placed(tier_job({}, 1), placement, {cold_.path()}), {})[0];
  ASSERT_EQ(refusal(good), "");
  const std::vector<PlanStep>& all = good.program("train").steps;
  int tried = 0;
  int32_t known = -1;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].lane != Lane::nvme_read) continue;
    int32_t latest = -1;
    for (const int32_t wait : all[i].waits) {
      const PlanStep& other = all[static_cast<size_t>(wait)];
      if (other.lane == Lane::nvme_write && other.outputs[0] == all[i].inputs[0]) latest = wait;
    }
    if (latest <= known) continue;
    known = latest;
    Plan bad = good;
    // Steps of the lane before it may have waited for the store as well.
    for (size_t j = static_cast<size_t>(latest); j <= i; ++j) {
      if (all[j].lane == Lane::nvme_read) bad.programs[0].steps[j].waits.clear();
    }
    EXPECT_NE(refusal(bad).find("no wait orders them"), std::string::npos) << "step " << i;
    ++tried;
  }
  EXPECT_GT(tried, 3);
}

TEST_F(TierVerifier, PiecesThatOverlap) {
  // A piece stored over the next one: no element may be lost either.
  const Plan good = plan();
  int tried = 0;
  for (size_t i = 0; i + 1 < good.programs[0].steps.size(); ++i) {
    const PlanStep& step = good.programs[0].steps[i];
    const int64_t size = step.input_types[0].elements();
    if (!is_store(step) ||
        step.attrs.get_int("begin", 0) + 2 * size > step.output_types[0].elements()) {
      continue;
    }
    Plan bad = good;
    bad.programs[0].steps[i].attrs.set("begin", step.attrs.get_int("begin", 0) + size);
    EXPECT_NE(refusal(bad).find("of state"), std::string::npos) << refusal(bad);
    ++tried;
  }
  EXPECT_GT(tried, 3);
}

TEST_F(TierVerifier, PiecesOutsideOfTheirState) {
  Plan bad = plan();
  const auto store = std::find_if(steps(bad).begin(), steps(bad).end(), is_store);
  ASSERT_NE(store, steps(bad).end());
  store->attrs.set("begin", store->output_types[0].elements());
  EXPECT_NE(refusal(bad).find("moves bytes"), std::string::npos) << refusal(bad);
}

TEST_F(TierVerifier, ColdBuffersAreAligned) {
  Plan bad = plan();
  const auto cold = std::find_if(bad.buffers.begin(), bad.buffers.end(),
                                 [](const PlanBuffer& b) { return b.tier == Tier::nvme; });
  ASSERT_NE(cold, bad.buffers.end());
  cold->offset += 64;
  EXPECT_NE(refusal(bad).find("expected a multiple of 4096"), std::string::npos) << refusal(bad);
}

}  // namespace
}  // namespace weft::test
