// Pins: shares of tiers, parameters by pattern, and what is refused.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tiers/placements.h"
#include "weft/base/error.h"
#include "weft/shard/entries.h"

namespace weft::test {
namespace {

LayoutJob tuned(const std::function<void(Config&)>& tune) {
  LayoutJob job = tier_job({}, 3);
  job.tune = tune;
  return job;
}

Tier tier_of(const Plan& plan, const PlanState& state) {
  return plan.buffers[static_cast<size_t>(state.buffer)].tier;
}

void expect_usage_error(const LayoutJob& job, const std::vector<std::string>& parts) {
  try {
    plan_layout(job, {});
    FAIL() << "was not refused: " << parts[0];
  } catch (const UsageError& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << part << " is not in: " << error.what();
    }
  }
}

TEST(Pins, SharesAreKeptUpToOneTensor) {
  const ColdFolder cold;
  for (const auto& [device, host, nvme] : std::vector<std::array<double, 3>>{
           {0.25, 0.25, 0.5}, {0.0, 0.5, 0.5}, {0.1, 0.9, 0.0}, {0.0, 0.0, 1.0}}) {
    const LayoutJob job = tuned([&](Config& config) {
      config.memory.nvme = {cold.path()};
      config.offload.optimizer = {"", {{"device", device}, {"host", host}, {"nvme", nvme}}};
    });
    const Plan plan = plan_layout(job, {})[0];
    int64_t total = 0;
    int64_t largest = 0;
    std::map<Tier, int64_t> bytes;
    for (const PlanState& state : plan.states) {
      if (state.role == StateRole::weight || state.name.ends_with("@pending")) continue;
      total += state.type.bytes();
      largest = std::max(largest, state.type.bytes());
      bytes[tier_of(plan, state)] += state.type.bytes();
    }
    const std::pair<Tier, double> shares[] = {
        {Tier::device, device}, {Tier::host, host}, {Tier::nvme, nvme}};
    for (const auto& [tier, share] : shares) {
      EXPECT_NEAR(static_cast<double>(bytes[tier]), share * static_cast<double>(total),
                  static_cast<double>(largest))
          << tier_name(tier);
      if (share == 0) EXPECT_EQ(bytes[tier], 0) << tier_name(tier);
    }
  }
}

TEST(Pins, GroupsMoveOnlyTheirParameters) {
  const ColdFolder cold;
  for (const std::string tier : {"host", "nvme"}) {
    for (const std::string pattern : {"model.embed_tokens.*", "model.layers.*.mlp.*",
                                      "model.layers.1.self_attn.q_proj.weight"}) {
      SCOPED_TRACE(pattern);
      const LayoutJob job = tuned([&](Config& config) {
        config.memory.nvme = {cold.path()};
        config.offload.groups = {{pattern, tier}};
      });
      const LayoutResult got = run_layout(job, {});
      expect_same_run(got, run_layout(tier_job({}, 3), {}));
      int moved = 0;
      for (const PlanState& state : got.plans[0].states) {
        if (state.name.ends_with("@pending")) continue;
        const std::string parameter = state.name.substr(0, state.name.find('@'));
        const bool away = tier_of(got.plans[0], state) != Tier::device;
        EXPECT_EQ(away, matches_module(pattern, parameter)) << state.name;
        moved += away ? 1 : 0;
      }
      EXPECT_GE(moved, 4);  // a weight, its master and two moments
      EXPECT_NE(plan_text(got.plans[0]).find(pattern + " on " + tier), std::string::npos);
    }
  }
}

TEST(Pins, PatternsThatMatchNothingAreRefused) {
  expect_usage_error(tuned([](Config& config) {
                       config.offload.groups = {{"model.embedtokens.*", "host"}};
                     }),
                     {"offload.groups", "\"model.embedtokens.*\"", "matches no parameter",
                      "model.embed_tokens.*"});
}

TEST(Pins, TheDiskNeedsAFolder) {
  for (const char* classes : {"nddd", "dndd", "ddnd", "dddn", "sddd"}) {
    expect_usage_error(placed(tier_job({}, 1), {.classes = classes}, {}), {"memory.nvme"});
  }
  expect_usage_error(tuned([](Config& config) {
                       config.offload.groups = {{"model.embed_tokens.*", "nvme"}};
                     }),
                     {"offload.groups", "memory.nvme"});
}

/// S1: what lives on the host is trained.
TEST(Pins, S1_HostPlacedEmbeddingsAndGainsTrainExactly) {
  for (const char* family : {"llama", "gpt2"}) {
    for (const Layout& layout : {Layout{}, Layout{.data = 2, .op = 2, .zero = 1}}) {
      LayoutJob job = tier_job({.family = family}, 4);
      const LayoutResult device = run_layout(job, layout);
      job.tune = [&](Config& config) {
        const bool gpt2 = std::string(family) == "gpt2";
        config.offload.groups = {{gpt2 ? "transformer.wte.*" : "model.embed_tokens.*", "host"},
                                 {gpt2 ? "*.bias" : "*norm.weight", "host"}};
      };
      const LayoutResult got = run_layout(job, layout);
      expect_same_run(got, device);
      for (const auto& [name, tensor] : got.trained) {
        EXPECT_FALSE(tensor.bytes == got.initial.at(name).bytes) << name << " was not trained";
      }
      EXPECT_GT(state_bytes_in(got.plans[0], Tier::host), 0);
    }
  }
}

}  // namespace
}  // namespace weft::test
