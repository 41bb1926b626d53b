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

/// From one step to the next alone.
bool is_carried(const PlanState& state) { return state.slot == "pending" || state.slot == "ahead"; }

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
      if (state.role == StateRole::weight || is_carried(state)) continue;
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
        if (is_carried(state)) continue;
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

TEST(Ahead, TheFirstPiecesOfALateUpdateLieReady) {
  const ColdFolder cold;
  const Placement late{.classes = "nddd", .update_on_host = true, .late_update = true};
  const Plan plan = plan_layout(placed(tier_job({}, 3), late, {cold.path()}), {})[0];
  const auto reads = [](const PlanProgram& program) {
    int64_t bytes = 0;
    for (const PlanStep& step : program.steps) {
      if (step.lane == Lane::nvme_read) bytes += step.output_types[0].bytes();
    }
    return bytes;
  };
  int64_t ready = 0;
  int64_t optimizer = 0;
  for (const PlanState& state : plan.states) {
    if (state.slot == "ahead") {
      ready += state.type.bytes();
      EXPECT_EQ(tier_of(plan, state), Tier::host) << state.name;
    } else if (state.role != StateRole::weight && state.slot != "pending") {
      optimizer += state.type.bytes();
    }
  }
  // All of so small a model.
  EXPECT_EQ(ready, optimizer);
  EXPECT_EQ(reads(plan.program("prime")), ready);
  EXPECT_EQ(reads(plan.program("flush")), optimizer);
  const PlanProgram& train = plan.program("train");
  EXPECT_EQ(reads(train), optimizer) << "not twice";
  for (const PlanStep& step : train.steps) {
    if (step.phase != Phase::forward) continue;
    for (const int32_t wait : step.waits) {
      EXPECT_NE(train.steps[static_cast<size_t>(wait)].lane, Lane::nvme_read);
    }
  }
}

TEST(Ahead, NothingLiesReadyWithoutRoomOrWithABusyDisk) {
  const ColdFolder cold;
  const auto programs = [&](const Placement& placement, int64_t host) {
    LayoutJob job = placed(tier_job({}, 3), placement, {cold.path()});
    job.tune = [host, before = job.tune](Config& config) {
      before(config);
      if (host > 0) config.memory.host = host;
    };
    std::vector<std::string> names;
    const Plan plan = plan_layout(job, {})[0];
    for (const PlanProgram& program : plan.programs) {
      names.push_back(program.name);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  const auto with = [](const char* classes, bool late = true) {
    return Placement{.classes = classes, .update_on_host = true, .late_update = late};
  };
  const auto primes = [](const Names& names) {
    return std::find(names.begin(), names.end(), "prime") != names.end();
  };
  EXPECT_TRUE(primes(programs(with("nddd"), 0)));
  EXPECT_TRUE(primes(programs(with("nddd"), int64_t{1} << 30)));
  EXPECT_FALSE(primes(programs(with("nddd"), 64)));
  EXPECT_FALSE(primes(programs(with("nddd", false), 0)));
  EXPECT_FALSE(primes(programs(with("hddd"), 0)));
  EXPECT_FALSE(primes(programs(with("nndd"), 0)));
  EXPECT_FALSE(primes(programs(with("ndnd"), 0)));
  EXPECT_FALSE(primes(programs(with("nddn"), 0)));
}

TEST(Summary, LinksHaveTheBytesOfAStep) {
  const ColdFolder cold;
  const Placement placement{.classes = "nddd", .update_on_host = true};
  const Plan plan = plan_layout(placed(tier_job({}, 1), placement, {cold.path()}), {})[0];
  const Json traffic = plan_summary_json(plan).at("traffic");
  const auto bytes = [&](const char* link) {
    return traffic.at(link).at("bytes_per_step").as_int();
  };
  // Masters and moments are read and written once.
  EXPECT_GT(state_bytes_in(plan, Tier::nvme), 0);
  EXPECT_EQ(bytes("nvme_read"), state_bytes_in(plan, Tier::nvme));
  EXPECT_EQ(bytes("nvme_write"), state_bytes_in(plan, Tier::nvme));
  EXPECT_GT(bytes("d2h"), 0) << "gradients go to the host";
  EXPECT_GT(bytes("h2d"), 0) << "weights come back";
}

}  // namespace
}  // namespace weft::test
