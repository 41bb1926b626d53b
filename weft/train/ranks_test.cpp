#include "weft/train/ranks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "weft/base/error.h"
#include "weft/train/cores.h"
#include "weft/train/feed.h"
#include "weft/train/shares.h"

namespace weft {
namespace {

ParallelConfig mesh(int64_t data, int64_t op) {
  ParallelConfig parallel;
  parallel.data = data;
  parallel.op = op;
  return parallel;
}

TEST(Ranks, TheBodyRunsOncePerRank) {
  Config config;
  config.parallel = mesh(2, 3);
  EXPECT_EQ(world_of(config.parallel), 6);
  std::atomic<int> ranks_seen = 0;
  const int result = run_on_ranks(config, [&](Communicator& ranks) {
    EXPECT_EQ(ranks.world(), 6);
    ranks_seen += 1 << ranks.rank();
    return ranks.rank() == 0 ? 42 : 7;
  });
  EXPECT_EQ(result, 42);
  EXPECT_EQ(ranks_seen, 63);
  use_one_rank(config);
  EXPECT_EQ(world_of(config.parallel), 1);
}

TEST(Ranks, CoresAreDividedAmongThreads) {
  const auto cores = static_cast<int>(usable_cores().size());
  ASSERT_GE(cores, 1);
  for (const int world : {1, 2, 3}) {
    const int share = std::max(1, cores / world);
    run_ranks({.world = world}, [&](Communicator& ranks) {
      EXPECT_EQ(agree_threads({}, ranks), share);
      EXPECT_EQ(agree_threads({.threads = 5}, ranks), 5);
      return 0;
    });
    EXPECT_EQ(planned_threads({}, world, {}), share);
    EXPECT_EQ(planned_threads({.threads = 5}, world, {}), 5);
  }
  // Under a launcher only the ranks of this machine share it.
  const Launch launch{LaunchKind::mpi, 0, 64, 0, 1, "mpirun"};
  EXPECT_EQ(planned_threads({}, 64, launch), cores);
}

TEST(Ranks, PlansTooLargeTogetherAreRefusedOnAllRanks) {
  Plan plan;
  plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes = int64_t{1} << 20;
  run_ranks({.world = 3}, [&](Communicator& ranks) {
    require_memory(plan, ranks);
    return 0;
  });
  // What all ranks of the machine need is what counts.
  try {
    run_ranks({.world = 3}, [&](Communicator& ranks) {
      Plan large = plan;
      if (ranks.rank() > 0) {
        large.tiers[static_cast<size_t>(Tier::device)].peak_bytes = int64_t{1} << 61;
      }
      require_memory(large, ranks);
      return 0;
    });
    FAIL() << "2^62 bytes fit";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("3 ranks"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string((int64_t{1} << 62) + (1 << 20))), std::string::npos) << text;
  }
}

TEST(Ranks, HostMemoryOnAutoIsWhatTheMachineMayGive) {
  const auto budget = [](int world, const MemoryConfig& memory) {
    std::optional<int64_t> agreed;
    run_ranks({.world = world}, [&](Communicator& ranks) {
      Config config;
      config.memory = memory;
      const std::optional<int64_t> mine = agree_host_budget(config, ranks);
      if (ranks.rank() == 0) agreed = mine;
      return 0;
    });
    return agreed;
  };
  // Only where the rest has somewhere to go.
  EXPECT_EQ(budget(1, {.device = 1000}), std::nullopt);
  EXPECT_EQ(budget(1, {.nvme = {"/disk"}}), std::nullopt);
  EXPECT_EQ(budget(1, {.device = 1000, .host = 77, .nvme = {"/disk"}}), 77);
  const std::optional<int64_t> room = budget(1, {.device = 1000, .nvme = {"/disk"}});
  ASSERT_TRUE(room.has_value());
  EXPECT_GT(*room, 1);
  // Every rank has a device of its own; more than there is leaves nothing.
  EXPECT_EQ(budget(3, {.device = *room, .nvme = {"/disk"}}), 1);
}

TEST(Ranks, EachMicroBatchIsDealtOverTheDataAxis) {
  Plan plan;
  EXPECT_EQ(data_ways(plan), 1);
  EXPECT_EQ(first_row(plan, 2, 4), 8);
  plan.mesh = {{"data", 3}, {"op", 2}};
  plan.coords = {{"data", 1}, {"op", 1}};
  EXPECT_EQ(data_ways(plan), 3);
  EXPECT_EQ(first_row(plan, 0, 4), 4);
  EXPECT_EQ(first_row(plan, 2, 4), (2 * 3 + 1) * 4);
}

}  // namespace
}  // namespace weft
