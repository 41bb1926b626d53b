// Budgets: what does not fit on the device moves, no more than that, and no bit changes; what
// cannot work is refused with the numbers that would.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/tiers/placements.h"
#include "weft/base/error.h"
#include "weft/plan/build.h"

namespace weft::test {
namespace {

struct Budgets {
  int64_t device = 0;
  int64_t host = 0;        // of the node; 0 = no limit
  int64_t nvme_limit = 0;  // the same
};

/// `folder` = "": without a cold tier.
LayoutJob budgeted(LayoutJob job, const Budgets& budgets, const std::string& folder) {
  job.tune = [budgets, folder](Config& config) {
    const auto limit = [](int64_t bytes) {
      return bytes > 0 ? std::optional<int64_t>(bytes) : std::nullopt;
    };
    config.memory.device = limit(budgets.device);
    config.memory.host = limit(budgets.host);
    if (folder.empty()) return;
    config.memory.nvme = {folder};
    config.memory.nvme_limit = limit(budgets.nvme_limit);
  };
  return job;
}

int64_t peak(const std::vector<Plan>& plans, Tier tier) {
  int64_t most = 0;
  for (const Plan& plan : plans) {
    most = std::max(most, plan.tiers[static_cast<size_t>(tier)].peak_bytes);
  }
  return most;
}

bool all_fit(const std::vector<Plan>& plans) {
  return std::all_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.fits; });
}

/// What a run with these plans would be refused with; "" when all fit.
std::string refusal(const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    try {
      require_fits(plan);
    } catch (const ResourceError& error) {
      return error.what();
    }
  }
  return "";
}

/// The largest number that any of the plans names in "<key> = N or more holds this plan"; 0 = none.
int64_t named_budget(const std::vector<Plan>& plans, const std::string& key) {
  const std::regex pattern(key + " = ([0-9]+) or more");
  int64_t most = 0;
  for (const Plan& plan : plans) {
    for (const std::string& line : plan.advice) {
      std::smatch match;
      if (std::regex_search(line, match, pattern)) most = std::max<int64_t>(most, stoll(match[1]));
    }
  }
  return most;
}

/// The smallest device budget that the refusal of a tiny one names.
int64_t smallest_device(const LayoutJob& job, const Layout& layout, Budgets budgets,
                        const std::string& folder) {
  budgets.device = 64;
  return named_budget(plan_layout(budgeted(job, budgets, folder), layout), "memory.device");
}

const std::vector<Layout> kLayouts = {
    {}, {.accumulation = 3}, {.data = 2, .zero = 2}, {.data = 2, .op = 2, .zero = 3}};

class Budget : public ::testing::Test {
 protected:
  const ColdFolder cold_;
  const LayoutJob job_ = tier_job({}, 3);
};

TEST_F(Budget, NothingMovesThatFits) {
  for (const Layout& layout : kLayouts) {
    const int64_t whole = peak(plan_layout(job_, layout), Tier::device);
    const auto plans = plan_layout(budgeted(job_, {.device = whole}, cold_.path()), layout);
    EXPECT_TRUE(all_fit(plans));
    EXPECT_EQ(peak(plans, Tier::host) + peak(plans, Tier::nvme), 0);
    EXPECT_TRUE(plans[0].notes.empty());
  }
}

TEST_F(Budget, SmallerDevicesComputeTheSame) {
  for (const Layout& layout : kLayouts) {
    const LayoutResult device = run_layout(job_, layout);
    const int64_t whole = peak(device.plans, Tier::device);
    const int64_t least = smallest_device(job_, layout, {}, cold_.path());
    ASSERT_GT(least, 0);
    ASSERT_LT(least, whole * 3 / 4) << "too little can be moved to test anything";
    for (int64_t part = 0; part <= 4; ++part) {
      const int64_t budget = least + (whole - 64 - least) * part / 4;
      SCOPED_TRACE(fmt::format("{} {} of {}", layout_name(layout), budget, whole));
      const LayoutResult got = run_layout(budgeted(job_, {.device = budget}, cold_.path()), layout);
      EXPECT_EQ(refusal(got.plans), "");
      EXPECT_LE(peak(got.plans, Tier::device), budget);
      EXPECT_GT(peak(got.plans, Tier::host), 0);
      EXPECT_EQ(peak(got.plans, Tier::nvme), 0) << "host memory has no limit here";
      EXPECT_TRUE(std::any_of(got.plans.begin(), got.plans.end(),
                              [](const Plan& plan) { return !plan.notes.empty(); }));
      expect_same_run(got, device);
    }
  }
}

TEST_F(Budget, WhatHostMemoryDoesNotHoldGoesToTheDisk) {
  // Host memory that is too small: the named budgets are taken until all fit, which needs one round
  // for each tier that was short.
  for (const Layout& layout : kLayouts) {
    const LayoutResult device = run_layout(job_, layout);
    const int64_t whole = peak(device.plans, Tier::device);
    Budgets budgets{.device = whole / 2, .host = 4096};
    std::vector<Plan> plans;
    const auto fits = [&] {
      plans = plan_layout(budgeted(job_, budgets, cold_.path()), layout);
      return all_fit(plans);
    };
    int rounds = 0;
    for (; !fits() && rounds < 5; ++rounds) {
      budgets.device = std::max(budgets.device, named_budget(plans, "memory.device"));
      budgets.host = std::max(budgets.host, named_budget(plans, "memory.host"));
    }
    SCOPED_TRACE(
        fmt::format("{} device {} host {}", layout_name(layout), budgets.device, budgets.host));
    EXPECT_GT(rounds, 0);
    EXPECT_LE(rounds, 3) << refusal(plans);
    EXPECT_LT(budgets.device, whole);
    const LayoutResult got = run_layout(budgeted(job_, budgets, cold_.path()), layout);
    EXPECT_LE(peak(got.plans, Tier::device), budgets.device);
    EXPECT_LE(peak(got.plans, Tier::host) * layout.world(), budgets.host);
    EXPECT_GT(peak(got.plans, Tier::nvme), 0);
    expect_same_run(got, device);
  }
}

TEST_F(Budget, TheNamedDeviceBudgetWorksAndOneByteLessDoesNot) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout_name(layout));
    const auto refused = plan_layout(budgeted(job_, {.device = 4096}, cold_.path()), layout);
    const std::string text = refusal(refused);
    EXPECT_NE(text.find("4096"), std::string::npos) << text;
    EXPECT_NE(text.find("missing"), std::string::npos) << text;
    const int64_t named = named_budget(refused, "memory.device");
    EXPECT_NE(text.find("memory.device = "), std::string::npos) << text;
    EXPECT_EQ(refusal(plan_layout(budgeted(job_, {.device = named}, cold_.path()), layout)), "");
    EXPECT_NE(refusal(plan_layout(budgeted(job_, {.device = named - 1}, cold_.path()), layout)),
              "");
  }
}

TEST_F(Budget, TheNamedHostBudgetWorks) {
  // Everything is pinned to host memory that is too small for it.
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout_name(layout));
    const auto with_host = [&](int64_t bytes) {
      LayoutJob job = placed(job_, {.classes = "hdhd"}, {});
      job.tune = [before = job.tune, bytes](Config& config) {
        before(config);
        config.memory.host = bytes;
      };
      return plan_layout(job, layout);
    };
    const auto refused = with_host(4096);
    const std::string text = refusal(refused);
    EXPECT_NE(text.find("host memory"), std::string::npos) << text;
    EXPECT_NE(text.find("missing"), std::string::npos) << text;
    const int64_t named = named_budget(refused, "memory.host");
    ASSERT_GT(named, 0);
    EXPECT_EQ(refusal(with_host(named)), "");
    EXPECT_NE(refusal(with_host(named / 2)), "");
  }
}

TEST_F(Budget, TheNamedLimitOfTheDiskWorks) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout_name(layout));
    const auto with_disk = [&](int64_t bytes) {
      LayoutJob job = placed(job_, {.classes = "nndd"}, {cold_.path()});
      job.tune = [before = job.tune, bytes](Config& config) {
        before(config);
        config.memory.nvme_limit = bytes;
      };
      return plan_layout(job, layout);
    };
    const std::string text = refusal(with_disk(8192));
    EXPECT_NE(text.find("nvme memory"), std::string::npos) << text;
    const int64_t named = named_budget(with_disk(8192), "memory.nvme_limit");
    ASSERT_GT(named, 0);
    EXPECT_EQ(refusal(with_disk(named)), "");
    EXPECT_NE(refusal(with_disk(named / 2)), "");
  }
}

TEST_F(Budget, EveryTierThatIsShortIsNamed) {
  const Budgets budgets{.device = 4096, .host = 4096, .nvme_limit = 8192};
  const auto plans = plan_layout(budgeted(job_, budgets, cold_.path()), {});
  const std::string text = refusal(plans);
  EXPECT_NE(text.find("device memory"), std::string::npos) << text;
  EXPECT_NE(text.find("4096"), std::string::npos) << text;
  EXPECT_NE(text.find("host memory: the plan needs"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft::test
