#include "weft/train/agree.h"

#include <gtest/gtest.h>

#include <atomic>

#include "weft/comm/launch.h"
#include "weft/train/vote.h"

namespace weft {
namespace {

/// Races between the ranks that end show up in some of so many runs.
constexpr int kRepeats = 100;

int on_ranks(int world, const std::function<void(Communicator&)>& body) {
  return run_ranks({.world = world, .stall_seconds = 60}, [&](Communicator& ranks) {
    body(ranks);
    return 0;
  });
}

template <class Expected>
std::string text_of(int world, const std::function<void(Communicator&)>& body) {
  try {
    on_ranks(world, body);
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Agree, WorkWithoutErrorsIsDoneByAll) {
  for (const int world : {1, 2, 5}) {
    std::atomic<int> done = 0;
    on_ranks(world, [&](Communicator& ranks) {
      on_all_ranks(ranks, Blame::rank, [&] { ++done; });
      EXPECT_EQ(done, world);  // nobody returns before all have done it
    });
  }
}

TEST(Agree, AnErrorOfEveryRankKeepsItsKind) {
  for (int i = 0; i < kRepeats; ++i) {
    const std::string text = text_of<InputError>(3, [&](Communicator& ranks) {
      on_all_ranks(ranks, Blame::rank, [&] { throw InputError("data", "got nothing"); });
    });
    EXPECT_EQ(text, "[data] got nothing");
  }
}

TEST(Agree, AnErrorOfOneRankIsThatOfAPeer) {
  for (int i = 0; i < kRepeats; ++i) {
    std::atomic<int> others = 0;
    const std::string text = text_of<PeerError>(3, [&](Communicator& ranks) {
      try {
        on_all_ranks(ranks, Blame::rank, [&] {
          if (ranks.rank() == 2) throw InputError("data", "got nothing");
        });
      } catch (const PeerError& error) {
        EXPECT_NE(std::string(error.what()).find("rank 2: [data] got nothing"), std::string::npos)
            << error.what();
        ++others;
        throw;
      }
    });
    EXPECT_EQ(others, 2);
    EXPECT_NE(text.find("rank 2: [data] got nothing"), std::string::npos) << text;
  }
}

TEST(Agree, ErrorsOfDifferentKindsNameTheFirstRank) {
  const std::string text = text_of<PeerError>(3, [&](Communicator& ranks) {
    on_all_ranks(ranks, Blame::rank, [&] {
      if (ranks.rank() == 1) throw InputError("data", "got nothing");
      if (ranks.rank() == 2) throw ResourceError("memory", "got none");
    });
  });
  EXPECT_NE(text.find("rank 1: [data] got nothing"), std::string::npos) << text;
}

TEST(Agree, AFaultOfTheJobIsEverybodys) {
  for (int i = 0; i < kRepeats; ++i) {
    const std::string text = text_of<ResourceError>(3, [&](Communicator& ranks) {
      on_all_ranks(ranks, Blame::job, [&] {
        if (ranks.rank() == 1) throw ResourceError("memory", "got none");
      });
    });
    EXPECT_EQ(text, "[memory] got none");
  }
}

TEST(Agree, TheFirstRankDecides) {
  on_ranks(3, [&](Communicator& ranks) {
    const std::string answer = on_first_rank(ranks, [&] {
      EXPECT_EQ(ranks.rank(), 0);
      return std::string("checkpoint");
    });
    EXPECT_EQ(answer, "checkpoint");
    EXPECT_EQ(on_first_rank(ranks, [] { return std::string(); }), "");
  });
  for (int i = 0; i < kRepeats; ++i) {
    text_of<InputError>(3, [&](Communicator& ranks) {
      on_first_rank(ranks, []() -> std::string { throw InputError("resume", "got nothing"); });
    });
  }
}

TEST(Agree, TheFirstRankAnswersFromAllMessages) {
  on_ranks(3, [&](Communicator& ranks) {
    const std::string answer =
        ask_first_rank(ranks, std::to_string(ranks.rank()), [](const auto& messages) {
          std::string all;
          for (const std::string& message : messages) all += message;
          return all;
        });
    EXPECT_EQ(answer, "012");
  });
}

StepRecord record_of(int rank) {
  StepRecord record;
  record.step = 4;
  record.loss = 2.5;
  record.tokens = 7;
  record.step_ms = 10 + rank;
  record.compute_ms = 1 + rank;
  record.comm_exposed_ms = 4 * rank;
  record.data_ms = 0.25;
  record.device_peak_bytes = 100 + rank;
  record.nvme_bytes = 10 - rank;
  record.nvme_write_bytes = 5;
  return record;
}

TEST(Vote, NumbersBecomeThoseOfTheJob) {
  on_ranks(3, [&](Communicator& ranks) {
    StepRecord record = record_of(ranks.rank());
    const Decision decision = vote(ranks, record, {});
    EXPECT_EQ(decision.signal, 0);
    EXPECT_FALSE(decision.save_by_time);
    EXPECT_EQ(decision.next_batch, "");
    EXPECT_DOUBLE_EQ(record.compute_ms, 2);
    EXPECT_DOUBLE_EQ(record.comm_exposed_ms, 4);
    EXPECT_DOUBLE_EQ(record.data_ms, 0.25);
    EXPECT_EQ(record.device_peak_bytes, 102);
    EXPECT_EQ(record.nvme_bytes, 10);
    EXPECT_EQ(record.nvme_write_bytes, 15);
    EXPECT_DOUBLE_EQ(record.step_ms, 10 + ranks.rank());  // left alone
    EXPECT_DOUBLE_EQ(record.loss, 2.5);
  });
}

TEST(Vote, OneRankKeepsItsNumbers) {
  on_ranks(1, [&](Communicator& ranks) {
    StepRecord record = record_of(2);
    const Decision decision = vote(ranks, record, {15, true, nullptr});
    EXPECT_EQ(decision.signal, 15);
    EXPECT_TRUE(decision.save_by_time);
    EXPECT_EQ(to_json(record).dump(), to_json(record_of(2)).dump());
  });
}

TEST(Vote, ASignalToAnyRankStopsAllAndTheClockOfTheFirstCounts) {
  on_ranks(3, [&](Communicator& ranks) {
    StepRecord record = record_of(0);
    Decision decision = vote(ranks, record, {ranks.rank() == 2 ? 15 : 0, ranks.rank() == 1, {}});
    EXPECT_EQ(decision.signal, 15);
    EXPECT_FALSE(decision.save_by_time);
    decision = vote(ranks, record, {0, ranks.rank() == 0, {}});
    EXPECT_EQ(decision.signal, 0);
    EXPECT_TRUE(decision.save_by_time);
    EXPECT_EQ(vote_signal(ranks, ranks.rank() == 1 ? 2 : 0), 2);
    EXPECT_EQ(vote_signal(ranks, 0), 0);
  });
}

TEST(Vote, AMissingBatchIsToldAndThrownLater) {
  const auto missing = std::make_exception_ptr(InputError("data", "row 3 is bad"));
  text_of<InputError>(2, [&](Communicator& ranks) {
    StepRecord record = record_of(0);
    const Decision decision = vote(ranks, record, {0, false, missing});
    throw_verdict(ranks, decision.next_batch, missing);
  });
  const std::string text = text_of<PeerError>(2, [&](Communicator& ranks) {
    StepRecord record = record_of(0);
    const std::exception_ptr mine = ranks.rank() == 1 ? missing : nullptr;
    const Decision decision = vote(ranks, record, {0, false, mine});
    throw_verdict(ranks, decision.next_batch, mine);
  });
  EXPECT_NE(text.find("rank 1: [data] row 3 is bad"), std::string::npos) << text;
}

TEST(Vote, RanksWithDifferentResultsAreABug) {
  const std::string text = text_of<BugError>(2, [&](Communicator& ranks) {
    StepRecord record = record_of(0);
    record.loss += 1e-12 * ranks.rank();
    vote(ranks, record, {});
  });
  EXPECT_NE(text.find("rank 1 has"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft
