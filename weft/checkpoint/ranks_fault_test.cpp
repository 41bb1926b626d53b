// One of several ranks fails, or all are killed, in the middle of a save.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <limits>
#include <set>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/rank_layout.h"
#include "weft/comm/launch.h"
#include "weft/io/faulty.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

constexpr int kWorld = 3;

/// Every rank has elements of every tensor to write.
RankLayout layout_of() {
  RankLayout layout(kWorld, 0);
  layout.op = 1;
  for (RankLayout::Tensor& tensor : layout.tensors) {
    tensor.flat = true;
    tensor.cut_dim = -1;
    tensor.flat_weight = false;
  }
  return layout;
}

class RankFaults : public ::testing::Test {
 protected:
  static void run(const std::function<void(Communicator&)>& body) {
    run_ranks({.world = kWorld, .stall_seconds = 60}, [&](Communicator& communicator) {
      body(communicator);
      return 0;
    });
  }
  void save(int64_t step, int seed, bool async = false, int64_t keep = 1) {
    run([&](Communicator& communicator) {
      FakeStore store = layout_.filled_store(communicator.rank(), seed);
      CheckpointWriter writer(files_, folder_.path(), {.keep = keep, .async = async},
                              &communicator);
      writer.save(store, make_meta(step));
      writer.wait();
    });
  }
  bool holds(const std::string& path, int seed) {
    std::atomic<bool> same{true};
    run([&](Communicator& communicator) {
      FakeStore store = layout_.store(communicator.rank());
      load_checkpoint(files_, store, path, {}, &communicator);
      if (store.content() != layout_.filled_store(communicator.rank(), seed).content()) {
        same = false;
      }
    });
    return same;
  }
  /// Nothing but the checkpoint of step 1, filled with seed 1, and it loads.
  void expect_only_first() {
    EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000001"});
    EXPECT_TRUE(holds(folder_.file("step-00000001"), 1));
  }

  RankLayout layout_ = layout_of();
  TestFolder folder_;
  FaultyDriver faulty_{posix_driver()};
  FileSystem files_{faulty_};
};

TEST_F(RankFaults, B18_AFailureOnAnyRankIsTheVerdictOfAll) {
  save(1, 1);
  const struct {
    FileOp op;
    int error;
    const char* path;
    const char* rank;
  } faults[] = {{FileOp::write, ENOSPC, "rank-00001", "rank 1: "},
                {FileOp::write, EIO, "rank-00002", "rank 2: "},
                {FileOp::open, ENOSPC, "rank-00001", "rank 1: "},
                {FileOp::sync, EIO, "rank-00001", "rank 1: "},
                {FileOp::close, EIO, "rank-00002", "rank 2: "},
                {FileOp::write, EIO, "rank-00000", "rank 0: "},
                {FileOp::write, ENOSPC, "manifest.json", "rank 0: "},
                {FileOp::rename, EIO, "step-00000002", "rank 0: "},
                {FileOp::make_folder, ENOSPC, "step-00000002", "rank 0: "}};
  for (const bool async : {false, true}) {
    for (const auto& fault : faults) {
      int64_t skip = 0;
      for (;; ++skip) {
        faulty_.add({.op = fault.op, .path_part = fault.path, .skip = skip, .error = fault.error});
        std::vector<std::string> errors(kWorld);
        run([&](Communicator& communicator) {
          const auto rank = static_cast<size_t>(communicator.rank());
          FakeStore store = layout_.filled_store(communicator.rank(), 2);
          CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = async},
                                  &communicator);
          bool saving = true;
          try {
            writer.save(store, make_meta(2));
            saving = false;
            writer.wait();
          } catch (const ResourceError& error) {
            errors[rank] = error.what();
            EXPECT_EQ(saving, !async);  // at the same call on every rank
          }
        });
        faulty_.clear();
        EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()).size(), 1u);
        if (errors[0].empty()) break;  // fewer calls than that: the save went through
        EXPECT_NE(errors[0].find(fault.rank), std::string::npos) << errors[0];
        expect_only_first();
      }
      EXPECT_GT(skip, 0) << fault.path;
      EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 2);
      files_.remove_all(folder_.file("step-00000001"));  // it could not be judged and stayed
      files_.remove_all(folder_.file("step-00000002"));
      save(1, 1);
    }
  }
}

TEST_F(RankFaults, B18_ADiskForOneAndAHalfCheckpoints) {
  save(1, 1);
  for (const bool async : {false, true}) {
    faulty_.set_capacity(1000);
    std::atomic<int> failed{0};
    run([&](Communicator& communicator) {
      FakeStore store = layout_.filled_store(communicator.rank(), 2);
      CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = async}, &communicator);
      try {
        writer.save(store, make_meta(2));
        writer.wait();
      } catch (const ResourceError& error) {
        ++failed;
        EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
      }
    });
    EXPECT_EQ(failed, kWorld);
    faulty_.set_capacity(-1);
    expect_only_first();
  }
}

TEST_F(RankFaults, B71_ABackgroundFailureIsReportedOnceByTheNextSaveOfAllRanks) {
  save(1, 1);
  faulty_.add({.op = FileOp::sync, .path_part = "rank-00002", .times = 1, .error = EIO});
  run([&](Communicator& communicator) {
    FakeStore store = layout_.filled_store(communicator.rank(), 2);
    CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = true}, &communicator);
    writer.save(store, make_meta(2));
    EXPECT_THROW(writer.save(store, make_meta(3)), ResourceError);
    writer.save(store, make_meta(4));
    writer.wait();
  });
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000004"});
  EXPECT_TRUE(holds(folder_.file("step-00000004"), 2));
}

TEST_F(RankFaults, B37_NonFiniteValuesOnOneRankStopAll) {
  save(1, 1);
  const std::string name = "model.embed_tokens.weight";
  for (const bool async : {false, true}) {
    std::vector<std::string> errors(kWorld);
    run([&](Communicator& communicator) {
      const int rank = communicator.rank();
      FakeStore store = layout_.filled_store(rank, 2);
      if (rank == 2) store.values(name + "@v")[1] = std::numeric_limits<float>::quiet_NaN();
      CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = async}, &communicator);
      try {
        writer.save(store, make_meta(2));
      } catch (const AlarmError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      EXPECT_NO_THROW(writer.wait());
      if (!async) writer.save_diagnostic(store, make_meta(2));
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      EXPECT_NE(error.find("rank 2"), std::string::npos) << error;
      EXPECT_NE(error.find(name + "@v"), std::string::npos) << error;
    }
    files_.remove_all(folder_.file("diagnostic-step-00000002"));
    expect_only_first();
  }
}

TEST_F(RankFaults, ARankThatDiesLeavesTheOlderCheckpointAndNoHang) {
  save(1, 1);
  for (const bool async : {false, true}) {
    std::atomic<int> peers{0};
    EXPECT_THROW(run([&](Communicator& communicator) {
                   FakeStore store = layout_.filled_store(communicator.rank(), 2);
                   CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = async},
                                           &communicator);
                   if (communicator.rank() == 1) throw InputError("rank", "got no more data");
                   try {
                     writer.save(store, make_meta(2));
                     writer.wait();
                   } catch (const PeerError& error) {
                     ++peers;
                     EXPECT_NE(std::string(error.what()).find("no more data"), std::string::npos);
                     throw;
                   }
                 }),
                 PeerError);
    EXPECT_EQ(peers, kWorld - 1);
    expect_only_first();
  }
}

TEST_F(RankFaults, TheOthersStopSoonAfterOneFails) {
  const auto writes_of_rank_2 = [&] {
    int64_t count = 0;
    for (const std::string& line : faulty_.log()) {
      if (line.rfind("write rank-00002", 0) == 0) ++count;
    }
    return count;
  };
  const auto save_in_rounds = [&](int64_t step, int64_t bytes) {
    run([&](Communicator& communicator) {
      FakeStore store = layout_.filled_store(communicator.rank(), 1);
      CheckpointWriter writer(files_, folder_.path(), {.async = false, .round_bytes = bytes},
                              &communicator);
      writer.save(store, make_meta(step));
    });
  };
  save_in_rounds(1, 1);
  EXPECT_TRUE(holds(folder_.file("step-00000001"), 1));
  const int64_t all = writes_of_rank_2();
  EXPECT_GT(all, 10);
  faulty_.add({.op = FileOp::open, .path_part = "rank-00001", .times = 1, .error = EIO});
  EXPECT_THROW(save_in_rounds(2, 1), ResourceError);
  EXPECT_LT(writes_of_rank_2() - all, 6);  // the header and one piece of at most three boxes
  expect_only_first();
  faulty_.clear();
  save_in_rounds(2, 200);
  EXPECT_TRUE(holds(folder_.file("step-00000002"), 1));
}

TEST_F(RankFaults, OnlyTheFirstRankRemovesAndCleansUp) {
  save(1, 1);
  save(2, 2);
  // Of a process that is gone: no process has this number.
  files_.make_folders(folder_.file("step-00000009.tmp-999999999"));
  const size_t begin = faulty_.log().size();
  save(3, 3);
  const std::vector<std::string> log = faulty_.log();
  const auto count = [&](const std::string& entry) {
    return std::count_if(log.begin() + static_cast<int64_t>(begin), log.end(),
                         [&](const std::string& line) { return line.rfind(entry, 0) == 0; });
  };
  EXPECT_EQ(count("rename step-00000002"), 1);
  EXPECT_EQ(count("rename step-00000003.tmp-"), 1);
  EXPECT_EQ(count("write manifest.json"), 1);
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000003"});
  // The manifest comes after the files of all ranks are durable.
  const auto first = [&](const std::string& entry) {
    return std::find_if(log.begin() + static_cast<int64_t>(begin), log.end(),
                        [&](const std::string& line) { return line.rfind(entry, 0) == 0; });
  };
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_LT(first("close rank-0000" + std::to_string(rank)), first("write manifest.json"));
  }
}

TEST_F(RankFaults, B06_KilledBeforeAnyCallTheNewestCompleteOneLoads) {
  save(1, 1);
  int status = 0;
  int64_t killed = 0;
  for (;; ++killed) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::atomic<int64_t> calls{0};
      faulty_.set_hook([&](FileOp, const std::string&) {
        if (calls++ == killed) ::kill(::getpid(), SIGKILL);
      });
      save(2, 2);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const NewestCheckpoint newest = newest_checkpoint(files_, folder_.path());
    ASSERT_TRUE(newest.entry) << "killed before call " << killed;
    EXPECT_TRUE(newest.skipped.empty());
    EXPECT_TRUE(holds(newest.entry->path, static_cast<int>(newest.entry->step)));
    CheckpointWriter next(files_, folder_.path());
    for (const std::string& name : files_.list(folder_.path())) {
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
    if (WIFEXITED(status)) break;
    if (newest.entry->step == 2) {
      files_.remove_all(folder_.file("step-00000002"));
      save(1, 1);
    }
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(killed, 40);
}

}  // namespace
}  // namespace weft
