// Full disks, failing calls, kills and slow disks in the middle of a save.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/fake_store.h"
#include "weft/io/faulty.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class CheckpointFaults : public ::testing::Test {
 protected:
  std::string save(FakeStore& store, int64_t step, WriterOptions options) {
    CheckpointWriter writer(files_, folder_.path(), options);
    const std::string path = writer.save(store, make_meta(step));
    writer.wait();
    return path;
  }
  /// Nothing but the checkpoint of step 1, and it loads.
  void expect_only_first(const FakeStore& first) {
    faulty_.clear();
    EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000001"});
    const NewestCheckpoint newest = newest_checkpoint(files_, folder_.path());
    ASSERT_TRUE(newest.entry);
    EXPECT_EQ(newest.entry->step, 1);
    FakeStore back = make_fake();
    load_checkpoint(files_, back, newest.entry->path);
    EXPECT_EQ(back.stored(), first.stored());
  }

  TestFolder folder_;
  FaultyDriver faulty_{posix_driver()};
  FileSystem files_{faulty_};
};

TEST_F(CheckpointFaults, B18_EveryFailingCallKeepsTheOlderCheckpoint) {
  const FakeStore first = make_fake();
  FakeStore store = first;
  save(store, 1, {.keep = 1, .async = false});
  store.fill(7);
  const std::pair<FileOp, int> faults[] = {{FileOp::write, ENOSPC}, {FileOp::write, EIO},
                                           {FileOp::sync, EIO},     {FileOp::close, EIO},
                                           {FileOp::open, ENOSPC},  {FileOp::make_folder, ENOSPC}};
  for (const bool async : {false, true}) {
    for (const auto& [op, error] : faults) {
      int64_t skip = 0;
      for (;; ++skip) {
        faulty_.clear();
        faulty_.add({.op = op, .path_part = "step-00000002", .skip = skip, .error = error});
        bool failed = false;
        try {
          save(store, 2, {.keep = 1, .async = async});
        } catch (const ResourceError&) {
          failed = true;
        }
        if (!failed) break;  // fewer calls than that: the save went through
        expect_only_first(first);
      }
      EXPECT_GT(skip, 0);
      // The one that went through replaced the old one; put that back for the next round.
      faulty_.clear();
      files_.remove_all(folder_.file("step-00000002"));
      FakeStore again = first;
      save(again, 1, {.keep = 1, .async = false});
    }
  }
}

TEST_F(CheckpointFaults, B18_ADiskForOneAndAHalfCheckpoints) {
  const FakeStore first = make_fake();
  FakeStore store = first;
  const int64_t bytes = snapshot_bytes(store.states());
  save(store, 1, {.keep = 1, .async = false});
  for (const bool async : {false, true}) {
    faulty_.set_capacity(bytes / 2);
    try {
      save(store, 2, {.keep = 1, .async = async});
      FAIL() << "saved on a full disk";
    } catch (const ResourceError& error) {
      EXPECT_NE(std::string(error.what()).find("needed"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
    }
    expect_only_first(first);
  }
}

TEST_F(CheckpointFaults, B18_OldOnesGoOnlyAfterTheNewOneIsDurable) {
  FakeStore store = make_fake();
  save(store, 1, {.keep = 1, .async = false});
  const size_t begin = faulty_.log().size();
  save(store, 2, {.keep = 1, .async = false});
  const std::vector<std::string> log = faulty_.log();
  const auto first = [&](const std::string& entry, size_t from) {
    for (size_t i = from; i < log.size(); ++i) {
      if (log[i].rfind(entry, 0) == 0) return i;
    }
    ADD_FAILURE() << "no " << entry;
    return log.size();
  };
  const size_t sync_model = first("sync model.safetensors", begin);
  const size_t write_manifest = first("write manifest.json", begin);
  const size_t sync_manifest = first("sync manifest.json", begin);
  const size_t rename = first("rename step-00000002.tmp-", begin);
  const size_t sync_parent = first("sync_folder " + file_name(folder_.path()), rename);
  const size_t retire = first("rename step-00000001", begin);
  EXPECT_LT(sync_model, write_manifest);
  EXPECT_LT(first("sync optimizer.safetensors", begin), write_manifest);
  EXPECT_LT(sync_manifest, first("sync_folder step-00000002.tmp-", begin));
  EXPECT_LT(sync_manifest, rename);
  EXPECT_LT(rename, sync_parent);
  EXPECT_LT(sync_parent, retire);
}

TEST_F(CheckpointFaults, B18_AnOldOneThatCannotBeRemovedDoesNotFailTheSave) {
  FakeStore store = make_fake();
  save(store, 1, {.keep = 1, .async = false});
  faulty_.add({.op = FileOp::rename, .path_part = "step-00000001", .error = EACCES});
  EXPECT_NO_THROW(save(store, 2, {.keep = 1, .async = false}));
  EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 2);
}

TEST_F(CheckpointFaults, B06_KilledBeforeAnyCallTheNewestCompleteOneLoads) {
  const FakeStore first = make_fake();
  FakeStore store = first;
  save(store, 1, {.keep = 1, .async = false});
  store.fill(7);
  const FakeStore second = store;
  int status = 0;
  int64_t killed = 0;
  for (;; ++killed) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int64_t calls = 0;
      faulty_.set_hook([&](FileOp, const std::string&) {
        if (calls++ == killed) ::kill(::getpid(), SIGKILL);
      });
      save(store, 2, {.keep = 1, .async = false});
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const NewestCheckpoint newest = newest_checkpoint(files_, folder_.path());
    ASSERT_TRUE(newest.entry) << "killed before call " << killed;
    EXPECT_TRUE(newest.skipped.empty());
    FakeStore back = make_fake();
    load_checkpoint(files_, back, newest.entry->path);
    EXPECT_EQ(back.stored(), (newest.entry->step == 1 ? first : second).stored());
    // The next process starts clean: the folder aside is gone.
    CheckpointWriter next(files_, folder_.path());
    for (const std::string& name : files_.list(folder_.path())) {
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
    if (WIFEXITED(status)) break;
    if (newest.entry->step == 2) {  // start over from step 1 for the next call
      files_.remove_all(folder_.file("step-00000002"));
      FakeStore again = first;
      save(again, 1, {.keep = 1, .async = false});
    }
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(killed, 20);
}

/// Holds every write back until opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST_F(CheckpointFaults, B71_BackgroundSaveSeesTheStateAtTheCall) {
  FakeStore store = make_fake();
  const FakeStore before = store;
  Gate gate;
  faulty_.set_hook([&](FileOp op, const std::string&) {
    if (op == FileOp::write) gate.pass();
  });
  CheckpointWriter writer(files_, folder_.path(), {.keep = 0, .async = true});
  const std::string path = writer.save(store, make_meta(1));
  store.fill(8);  // the next step, while nothing is written yet
  EXPECT_FALSE(newest_checkpoint(files_, folder_.path()).entry);
  gate.open();
  writer.wait();
  FakeStore back = make_fake();
  load_checkpoint(files_, back, path);
  EXPECT_EQ(back.stored(), before.stored());
  EXPECT_NE(back.stored(), store.stored());
}

TEST_F(CheckpointFaults, B71_BackgroundAndSynchronousSavesWriteTheSameBytes) {
  std::vector<std::string> contents[2];
  for (const bool async : {false, true}) {
    FakeStore store = make_fake();
    CheckpointWriter writer(files_, folder_.file(async ? "a" : "s"), {.keep = 0, .async = async});
    for (int64_t step = 1; step <= 4; ++step) {
      writer.save(store, make_meta(step));
      store.fill(static_cast<int>(step) * 5);
    }
    writer.wait();
    for (int64_t step = 1; step <= 4; ++step) {
      const std::string path = folder_.file(async ? "a/" : "s/") + checkpoint_name(step);
      for (const std::string& name : files_.list(path)) {
        contents[async].push_back(files_.read_text(join_path(path, name)));
      }
    }
  }
  EXPECT_EQ(contents[0].size(), 12u);
  EXPECT_EQ(contents[0], contents[1]);
}

TEST_F(CheckpointFaults, B71_BackgroundFailureSurfacesAtTheNextCall) {
  FakeStore store = make_fake();
  CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = true});
  writer.save(store, make_meta(1));
  writer.wait();
  faulty_.add({.op = FileOp::sync, .path_part = "step-00000002", .error = EIO});
  writer.save(store, make_meta(2));
  EXPECT_THROW(writer.save(store, make_meta(3)), ResourceError);
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000001"});
  writer.save(store, make_meta(4));  // reported once
  writer.wait();
  EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 4);
}

TEST_F(CheckpointFaults, B71_TheDestructorWaitsAndDoesNotThrow) {
  FakeStore store = make_fake();
  {
    CheckpointWriter writer(files_, folder_.path(), {.async = true});
    writer.save(store, make_meta(1));
  }
  EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 1);
  faulty_.add({.op = FileOp::write, .error = ENOSPC});
  {
    CheckpointWriter writer(files_, folder_.path(), {.async = true});
    writer.save(store, make_meta(2));
  }
  EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 1);
}

}  // namespace
}  // namespace weft
