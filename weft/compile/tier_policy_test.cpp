// What lives where: pins first, then what must move, cheapest traffic first.
#include "weft/compile/tier_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/compile/step_graph.h"

namespace weft {
namespace {

Config small_config() {
  Config config;
  config.model.family = "llama";
  config.model.hidden_size = 32;
  config.model.intermediate_size = 80;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  config.model.vocab_size = 257;
  config.data.seq_len = 32;
  config.train.micro_batch = 4;
  config.train.accumulation = 2;
  config.train.global_batch = 8;
  config.precision.compute = "bf16";
  config.device.threads = 1;
  return config;
}

class Policy : public ::testing::Test {
 protected:
  TierPolicy policy(const TierBudgets& budgets) const {
    return TierPolicy(config_, build_step_graph(config_, make_model_spec(config_.model, {}), false),
                      budgets);
  }
  /// A plan that lacks `missing` bytes of device memory.
  static Plan short_of(int64_t missing) {
    Plan plan;
    plan.tiers[0].budget = 1000;
    plan.tiers[0].peak_bytes = 1000 + missing;
    return plan;
  }
  static bool any_in(const std::map<std::string, Tier>& places, Tier tier) {
    return std::any_of(places.begin(), places.end(),
                       [&](const auto& place) { return place.second == tier; });
  }

  Config config_ = small_config();
};

TEST_F(Policy, NothingMovesUnlessItMust) {
  TierPolicy tiers = policy({});
  EXPECT_TRUE(tiers.choice().empty());
  EXPECT_FALSE(tiers.move_more(short_of(0)));
  EXPECT_TRUE(tiers.choice().empty());
  EXPECT_TRUE(tiers.reasons().empty());
}

TEST_F(Policy, ClassesMoveInTheOrderOfTheirTraffic) {
  TierPolicy tiers = policy({});
  ASSERT_TRUE(tiers.move_more(short_of(1)));
  EXPECT_EQ(tiers.choice().homes.size(), 1u);  // one state is enough
  EXPECT_NE(tiers.choice().homes.begin()->first.find('@'), std::string::npos);
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  const size_t optimizer = tiers.choice().homes.size();
  EXPECT_TRUE(tiers.choice().gradients.empty());
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  EXPECT_FALSE(tiers.choice().gradients.empty());
  EXPECT_TRUE(tiers.choice().activations.empty());
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  EXPECT_FALSE(tiers.choice().activations.empty());
  EXPECT_EQ(tiers.choice().homes.size(), optimizer);
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  EXPECT_GT(tiers.choice().homes.size(), optimizer);  // weights
  EXPECT_FALSE(tiers.move_more(short_of(1 << 30)));
  EXPECT_EQ(tiers.reasons().size(), 5u);
}

TEST_F(Policy, TheLastOneThatMovesIsTheSmallestThatCoversTheRest) {
  config_.model.hidden_size = 256;
  config_.model.intermediate_size = 640;
  config_.model.vocab_size = 2048;
  // Masters and moments: the head and the embedding 2 MiB each, matrices of the MLP 640 KiB, of the
  // attention 256 and 128 KiB; norms are small.
  const auto moved = [&](int64_t missing) {
    TierPolicy tiers = policy({});
    EXPECT_TRUE(tiers.move_more(short_of(missing)));
    return tiers.reasons().at(0);
  };
  EXPECT_TRUE(moved(100 << 10).starts_with("131072 bytes of optimizer")) << moved(100 << 10);
  EXPECT_TRUE(moved(200 << 10).starts_with("262144 bytes of optimizer")) << moved(200 << 10);
  EXPECT_TRUE(moved((2 << 20) + 4).starts_with("2228224 bytes of optimizer"))
      << moved((2 << 20) + 4);
}

TEST_F(Policy, WhatIsSmallMovesBehindEverythingElse) {
  config_.model.hidden_size = 256;
  TierPolicy tiers = policy({});
  const auto small = [&] {
    return tiers.choice().homes.contains("model.norm.weight@master") ||
           tiers.choice().homes.contains("model.norm.weight@m");
  };
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
    EXPECT_FALSE(small()) << tiers.reasons().back();
  }
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  EXPECT_TRUE(small());
}

TEST_F(Policy, HostMemoryFillsBeforeTheDisk) {
  TierPolicy tiers = policy({.host = 60'000, .nvme = 0});
  ASSERT_TRUE(tiers.move_more(short_of(1 << 30)));
  EXPECT_TRUE(any_in(tiers.choice().homes, Tier::host));
  EXPECT_TRUE(any_in(tiers.choice().homes, Tier::nvme));
  EXPECT_TRUE(tiers.choice().late_update);
  EXPECT_TRUE(tiers.choice().update_on_host);
  TierPolicy without = policy({.host = 60'000});
  ASSERT_TRUE(without.move_more(short_of(1 << 30)));
  EXPECT_FALSE(any_in(without.choice().homes, Tier::nvme));
  EXPECT_FALSE(without.choice().late_update);
  TierPolicy reserved = policy({.host = 60'000, .host_reserve = 60'000});
  EXPECT_FALSE(reserved.move_more(short_of(1 << 30)));
}

TEST_F(Policy, PinnedClassesStay) {
  config_.offload.optimizer = {"device", {}};
  config_.offload.gradients = {"device", {}};
  config_.offload.activations = {"device", {}};
  config_.offload.weights = {"device", {}};
  TierPolicy tiers = policy({});
  EXPECT_FALSE(tiers.move_more(short_of(1 << 30)));
  EXPECT_TRUE(tiers.choice().empty());
  EXPECT_EQ(tiers.reasons().size(), 4u);
}

TEST_F(Policy, PiecesAreWholeBlocksOfTheDisk) {
  for (const int64_t window :
       {int64_t{0}, int64_t{1}, int64_t{98'304}, int64_t{1'000'003}, int64_t{1} << 40}) {
    config_.offload.prefetch = window;
    const int64_t chunk = policy({}).choice().chunk_bytes;
    EXPECT_GE(chunk, 8192);
    EXPECT_EQ(chunk % 8192, 0) << window;
    EXPECT_LE(chunk * 12, std::max<int64_t>(window, 12 * 8192));
  }
}

TEST_F(Policy, BudgetsOfANodeAreSharedByItsRanks) {
  config_.memory.device = 1000;
  config_.memory.host = 8000;
  const TierBudgets off = tier_budgets(config_, 4);
  EXPECT_EQ(off.device, 1000);
  EXPECT_EQ(off.host, 2000);
  EXPECT_LT(off.nvme, 0);
  config_.memory.nvme = {"/disk"};
  EXPECT_EQ(tier_budgets(config_, 4).nvme, 0);
  config_.memory.nvme_limit = 40'000;
  EXPECT_EQ(tier_budgets(config_, 4).nvme, 10'000);
}

}  // namespace
}  // namespace weft
