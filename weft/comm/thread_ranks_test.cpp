// Ranks that are threads: the cases of all communicators, failures, stalls.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "weft/base/error.h"
#include "weft/comm/comm_test_util.h"
#include "weft/comm/launch.h"

namespace weft {
namespace {

/// Runs the body and returns what it threw as "code: text", "" when nothing.
template <class Body>
std::string failure(const RankOptions& options, Body&& body) {
  try {
    run_ranks(options, body);
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}
#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

const CommCase kSum = {.kind = CollectiveKind::all_reduce, .shapes = {{1000}}};

class ThreadRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ThreadRanks, testing::Range(1, 6));

TEST_P(ThreadRanks, MatchTheReference) {
  const int world = GetParam();
  std::atomic<int> ran = 0;
  run_ranks({.world = world}, [&](Communicator& comm) {
    EXPECT_EQ(comm.world(), world);
    for (const CommCase& c : comm_cases()) {
      const std::string wrong = run_case(comm, c, all_ranks(world));
      EXPECT_EQ(wrong, "") << "world " << world;
      ++ran;
    }
    return 0;
  });
  EXPECT_EQ(ran, world * static_cast<int>(comm_cases().size()));
}

TEST(ThreadRanksLarge, MatchTheReference) {
  run_ranks({.world = 3}, [&](Communicator& comm) {
    for (const CommCase& c : large_comm_cases()) EXPECT_EQ(run_case(comm, c, all_ranks(3)), "");
    return 0;
  });
}

TEST_P(ThreadRanks, ControlMessagesOfBothChannels) {
  const int world = GetParam();
  const int result = run_ranks({.world = world}, [&](Communicator& comm) {
    const auto talk = [&](Channel channel, const std::string& word) {
      for (int i = 0; i < 20; ++i) {
        const std::string own = fmt::format("{} {} {}", word, comm.rank(), i);
        const std::vector<std::string> all = comm.gather(channel, own);
        EXPECT_EQ(all.size(), comm.rank() == 0 ? static_cast<size_t>(world) : 0U);
        for (size_t r = 0; r < all.size(); ++r) {
          EXPECT_EQ(all[r], fmt::format("{} {} {}", word, r, i));
        }
        comm.barrier(channel);
        EXPECT_EQ(comm.broadcast(channel, own), fmt::format("{} 0 {}", word, i));
      }
    };
    std::thread other([&] { talk(Channel::checkpoint, "save"); });
    talk(Channel::train, "step");
    other.join();
    return comm.rank() + 7;
  });
  EXPECT_EQ(result, 7);  // that of rank 0
}

TEST(ThreadRanksGroups, RunAtTheSameTime) {
  run_ranks({.world = 4}, [&](Communicator& comm) {
    // A mesh of 2 x 2: one lane works on each axis.
    const int rank = comm.rank();
    const std::vector<int32_t> row = {rank / 2 * 2, rank / 2 * 2 + 1};
    const std::vector<int32_t> column = {rank % 2, rank % 2 + 2};
    std::thread lane([&] {
      for (const CommCase& c : comm_cases()) EXPECT_EQ(run_case(comm, c, column, "data"), "");
    });
    for (const CommCase& c : comm_cases()) EXPECT_EQ(run_case(comm, c, row, "op"), "");
    lane.join();
    EXPECT_EQ(comm.received().size(), 2U);
    return 0;
  });
}

TEST(ThreadRanksFailure, FirstCauseWakesAllWhoWait) {
  std::atomic<int> woken = 0;
  const std::string text = failure({.world = 4}, [&](Communicator& comm) -> int {
    if (comm.rank() == 2) throw InputError("data", "got a bad file");
    try {
      // Ranks 0 and 1 wait in a collective, rank 3 for a message.
      if (comm.rank() == 3) comm.gather(Channel::checkpoint, "hello");
      EXPECT_EQ(run_case(comm, kSum, {0, 1, 2}), "");
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "[comm] rank 2: [data] got a bad file");
      ++woken;
      EXPECT_THROW(comm.barrier(Channel::train), PeerError);
      throw;
    }
    return 0;
  });
  EXPECT_EQ(woken, 3);
  EXPECT_EQ(text, "6: [comm] rank 2: [data] got a bad file");
}

TEST(ThreadRanksFailure, AbortFromAnotherThreadNamesItsRank) {
  const std::string text = failure({.world = 3}, [&](Communicator& comm) -> int {
    if (comm.rank() == 1) {
      std::thread([&] { comm.abort("[lane] got no disk"); }).join();
      comm.abort("[lane] a later cause");
    }
    comm.barrier(Channel::train);
    return 0;
  });
  EXPECT_EQ(text, "6: [comm] rank 1: [lane] got no disk");
}

TEST(ThreadRanksFailure, TheOwnErrorOfTheFirstRankCounts) {
  // A lane of the rank aborts, then the rank itself throws what the lane met.
  const std::string text = failure({.world = 2}, [&](Communicator& comm) -> int {
    if (comm.rank() == 1) {
      comm.abort("[disk] full");
      throw ResourceError("disk", "got no room");
    }
    comm.barrier(Channel::train);
    return 0;
  });
  EXPECT_EQ(text, "6: [comm] rank 1: [disk] got no room");
}

TEST(ThreadRanksFailure, ErrorsThatConcernAllKeepTheirType) {
  const auto with = [](auto error) {
    return failure({.world = 3}, [=](Communicator& comm) -> int {
      if (comm.rank() == 1) throw error;
      comm.barrier(Channel::train);
      return 0;
    });
  };
  EXPECT_EQ(with(UsageError("a", "b")), "2: [a] b");
  EXPECT_EQ(with(AlarmError("a", "b")), "5: [a] b");
  EXPECT_EQ(with(Interrupted("a", "b")), "75: [a] b");
  EXPECT_EQ(with(BugError("a", "b")), "6: [comm] rank 1: [a] b");
  EXPECT_EQ(with(std::runtime_error("odd")),
            "6: [comm] rank 1: [weft] got an unexpected error (odd), expected none; this is a bug "
            "in weft");
}

TEST(ThreadRanksFailure, WhenAllFailAlikeTheErrorStays) {
  std::atomic<int> here = 0;
  const auto all_fail = [&](int odd_one) {
    here = 0;
    return failure({.world = 3}, [&](Communicator& comm) -> int {
      // All are past the point where they would see the failure of another.
      ++here;
      while (here < 3) std::this_thread::yield();
      if (comm.rank() == odd_one) throw ResourceError("disk", "full");
      throw InputError("config", "got an odd model");
    });
  };
  EXPECT_EQ(all_fail(-1), "3: [config] got an odd model");
  EXPECT_SAYS(all_fail(2), "6: [comm] rank ");
}

TEST(ThreadRanksFailure, OneRankAloneThrowsAsItIs) {
  EXPECT_EQ(failure({.world = 1}, [](Communicator&) -> int { throw InputError("x", "y"); }),
            "3: [x] y");
  EXPECT_EQ(failure({.world = 1}, [](Communicator&) -> int { throw std::runtime_error("odd"); }),
            "odd");
  EXPECT_SAYS(failure({.world = 0}, [](Communicator&) { return 0; }), "2: [parallel] got 0 ranks");
}

TEST(ThreadRanksFailure, MissingRanksHitTheLimit) {
  const std::string collective =
      failure({.world = 4, .stall_seconds = 0.2}, [&](Communicator& comm) -> int {
        if (comm.rank() % 2 == 0) run_case(comm, kSum, all_ranks(4));
        return 0;
      });
  EXPECT_SAYS(collective, "6: [comm] rank ");
  EXPECT_SAYS(collective, "got no answer from ranks 1, 3 in all_reduce over axis op for 0.2 s");
  const std::string control =
      failure({.world = 2, .stall_seconds = 0.2}, [&](Communicator& comm) -> int {
        if (comm.rank() == 0) comm.gather(Channel::checkpoint, "");
        return 0;
      });
  EXPECT_SAYS(control, "got no answer from rank 1 in gather on the checkpoint channel for 0.2 s");
}

TEST(ThreadRanksFailure, DifferentCollectivesOfOneGroupAreABug) {
  const std::string text = failure({.world = 2}, [&](Communicator& comm) -> int {
    const CommCase c = {.kind = CollectiveKind::all_reduce, .shapes = {{10 + comm.rank()}}};
    run_case(comm, c, all_ranks(2));
    return 0;
  });
  EXPECT_SAYS(text, "all_reduce over axis op of f32 10 on rank");
  EXPECT_SAYS(text, "all_reduce over axis op of f32 11 on rank");
}

TEST(ThreadRanksFailure, PrepareRefusesWrongGroups) {
  run_ranks({.world = 2}, [&](Communicator& comm) {
    const int rank = comm.rank();
    const auto prepare = [&](int ways, int index, std::vector<int32_t> group) {
      comm.prepare(kernel_spec(kSum, ways, index), group);
    };
    EXPECT_NO_THROW(prepare(2, rank, {0, 1}));
    EXPECT_THROW(prepare(2, 1 - rank, {0, 1}), BugError);
    EXPECT_THROW(prepare(3, rank, {0, 1}), BugError);
    EXPECT_THROW(prepare(3, rank, {0, 1, 2}), BugError);
    EXPECT_THROW(prepare(2, 1 - rank, {1, 0}), BugError);
    const CommCase lse = {.kind = CollectiveKind::all_reduce,
                          .dtype = DType::bf16,
                          .shapes = {{4}},
                          .reduction = Reduction::logsumexp};
    EXPECT_THROW(comm.prepare(kernel_spec(lse, 2, rank), all_ranks(2)), BugError);
    return 0;
  });
}

/// Memory of a rank that leaves goes at once; a rank that still reads it would be seen by the
/// sanitizers.
TEST(ThreadRanksFailure, MayComeAtAnyMoment) {
  const CommCase c = {.kind = CollectiveKind::all_reduce, .shapes = {{20000}}};
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> calls = 0;
    const std::string text = failure({.world = 4}, [&](Communicator& comm) -> int {
      if (comm.rank() == 3) {
        while (calls < round) std::this_thread::yield();
        throw InputError("data", "got a bad file");
      }
      std::vector<float> data(20000, 1.0F);
      std::vector<float> workspace(40000 + 64);
      const KernelSpec spec = kernel_spec(c, 3, comm.rank());
      const std::unique_ptr<Kernel> kernel = comm.prepare(spec, std::vector<int32_t>{0, 1, 2});
      const void* in[] = {data.data()};
      void* out[] = {data.data()};
      while (true) {
        kernel->run({in, out, workspace.data()});
        ++calls;
      }
    });
    EXPECT_EQ(text, "6: [comm] rank 3: [data] got a bad file");
  }
}

}  // namespace
}  // namespace weft
