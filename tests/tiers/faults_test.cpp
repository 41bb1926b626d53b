// Whole runs on a cold tier that fails: faults below everything that the store promises. A run goes
// on with the same bits or stops with path, offset and cause, and its last checkpoint is good.
#include <cerrno>

#include "tests/train/run_fixture.h"
#include "weft/base/error.h"
#include "weft/io/cold/faulty_engine.h"

namespace weft::test {
namespace {

using Keys = std::vector<std::string>;

constexpr int64_t kBlock = 4096;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TierFaults : public RunTest {
 protected:
  /// Everything that may live on NVMe does; a save after every step.
  Config cold(Keys keys = {}) const {
    keys.insert(keys.end(),
                {"memory.nvme=[\"" + path("cold") + "\"]", "offload.optimizer=nvme",
                 "offload.weights=nvme", "offload.gradients=nvme", "model.hidden_size=32",
                 "precision.compute=bf16", "checkpoint.every_steps=1", "checkpoint.keep=8"});
    return config(keys);
  }

  void run_with(IoFaults& faults, const Config& config, const std::string& name,
                std::optional<std::string> resume = {}) const {
    TrainOptions options{.out = path(name), .resume = std::move(resume), .command = "test"};
    options.cold.block_bytes = kBlock;
    options.cold.queue_depth = 4;
    options.cold.wrap_engine = faults.wrapper();
    train(config, options);
  }

  /// Requests of a run up to its `steps`-th step, its save included.
  int64_t requests(bool write, int64_t steps) const {
    IoFaults counted;
    run_with(counted, cold({"train.steps=" + std::to_string(steps)}), "counted");
    fs::remove_all(path("counted"));
    return counted.requests(write);
  }

  /// The error of a run that must stop with `code`.
  std::string error_of(IoFaults& faults, const Config& config, const std::string& name,
                       ExitCode code = ExitCode::resource) const {
    try {
      run_with(faults, config, name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }

  /// The fault hit the third step or its save: nothing is left on the disk, and the run goes on
  /// from its last checkpoint as if nothing had happened.
  void expect_good_end(const std::string& name) const {
    EXPECT_TRUE(fs::is_empty(path("cold"))) << "files of an ended run";
    EXPECT_TRUE(fs::exists(checkpoint(name, 2)));
    EXPECT_FALSE(fs::exists(checkpoint(name, 4)));
    IoFaults none;
    run_with(none, cold(), "straight");
    run_with(none, cold(), name, "");
    expect_same_checkpoint("straight", name, 6);
  }

  std::string cold_file() const { return path("cold") + "/weft-cold.run-"; }
};

TEST_F(TierFaults, B17_AFullDiskInTheMiddleStopsTheRun) {
  IoFaults faults;
  faults.add({.write = true, .skip = requests(true, 2) + 1, .error = ENOSPC});
  const std::string text = error_of(faults, cold(), "run");
  EXPECT_TRUE(says(text, cold_file()) && says(text, ".rank-0.stripe-0.bin")) << text;
  EXPECT_TRUE(says(text, "cannot write 4096 bytes at byte ") &&
              says(text, ": the disk is full, needed 4096 bytes, free "))
      << text;
  EXPECT_TRUE(says(text, "lane nvme_write, rank 0")) << text;
  expect_good_end("run");
}

TEST_F(TierFaults, B17_ADiskThatCannotBeReadStopsTheRun) {
  IoFaults faults;
  faults.add({.write = false, .skip = requests(false, 2) + 1, .error = EIO});
  const std::string text = error_of(faults, cold(), "run");
  EXPECT_TRUE(says(text, cold_file()) && says(text, "cannot read 4096 bytes at byte ") &&
              says(text, errno_text(EIO)))
      << text;
  EXPECT_TRUE(says(text, "lane nvme_read, rank 0")) << text;
  expect_good_end("run");
}

TEST_F(TierFaults, B17_ADiskThatCannotBeWrittenStopsTheRun) {
  IoFaults faults;
  faults.add({.write = true, .skip = requests(true, 2) + 1, .times = 1, .error = EIO});
  const std::string text = error_of(faults, cold(), "run");
  EXPECT_TRUE(says(text, cold_file()) && says(text, "cannot write 4096 bytes at byte ") &&
              says(text, errno_text(EIO)))
      << text;
  expect_good_end("run");
}

TEST_F(TierFaults, AFlippedBitStopsTheRunWithItsPlaceAndBothChecksums) {
  IoFaults faults;
  faults.add({.write = false, .skip = requests(false, 2) + 1, .times = 1, .flip_byte = 1234});
  const std::string text = error_of(faults, cold(), "run");
  EXPECT_TRUE(says(text, cold_file()) &&
              says(text, "got other bytes than were written in the 4096 bytes at byte ") &&
              says(text, "(checksum ") && says(text, "expected "))
      << text;
  EXPECT_TRUE(says(text, "lane nvme_read, rank 0")) << text;
  expect_good_end("run");
}

TEST_F(TierFaults, B16_ShortReadsAndWritesChangeNothing) {
  IoFaults none;
  run_with(none, cold(), "straight");
  for (const bool write : {true, false}) {
    SCOPED_TRACE(write ? "write" : "read");
    const std::string name = write ? "short-writes" : "short-reads";
    IoFaults faults;
    // A disk that moves half a block at first and gets on at the next try, again and again.
    for (int64_t skip = 0; skip < 4000; skip += 2) {
      faults.add({.write = write, .skip = skip, .times = 1, .short_bytes = 2048});
    }
    run_with(faults, cold(), name);
    EXPECT_GT(faults.requests(write), none.requests(write));
    expect_same_checkpoint("straight", name, 6);
  }
}

TEST_F(TierFaults, ASlowDiskThatAnswersOutOfOrderChangesNothing) {
  IoFaults none;
  run_with(none, cold(), "straight");
  IoFaults faults;
  for (const bool write : {true, false}) faults.add({.write = write, .hold = 3});
  run_with(faults, cold(), "slow");
  expect_same_checkpoint("straight", "slow", 6);
  const RunMetrics straight = read_metrics(path("straight") + "/metrics.jsonl");
  const RunMetrics slow = read_metrics(path("slow") + "/metrics.jsonl");
  ASSERT_EQ(slow.steps.size(), straight.steps.size());
  for (size_t i = 0; i < slow.steps.size(); ++i) {
    EXPECT_EQ(slow.steps[i].loss, straight.steps[i].loss) << i;
    EXPECT_EQ(slow.steps[i].nvme_read_bytes, straight.steps[i].nvme_read_bytes) << i;
    EXPECT_EQ(slow.steps[i].nvme_write_bytes, straight.steps[i].nvme_write_bytes) << i;
  }
}

TEST_F(TierFaults, B17_TheDiskOfOneRankStopsAllOfThem) {
  const Keys ranks = {"parallel.data=2", "parallel.zero=1"};
  IoFaults counted;
  Keys two = ranks;
  two.push_back("train.steps=2");
  run_with(counted, cold(two), "counted");
  IoFaults faults;
  faults.add({.write = true,
              .path_part = ".rank-1.",
              .skip = counted.requests(true) / 2 + 1,
              .error = EIO});
  // Rank 0, which speaks for the job, stops because another one did.
  const std::string text = error_of(faults, cold(ranks), "run", ExitCode::peer);
  EXPECT_TRUE(says(text, "rank 1: [train step ") && says(text, "lane nvme_write, rank 1")) << text;
  EXPECT_TRUE(says(text, cold_file()) &&
              says(text, ".rank-1.stripe-0.bin] cannot write 4096 bytes at byte ") &&
              says(text, errno_text(EIO)))
      << text;
  EXPECT_TRUE(fs::is_empty(path("cold"))) << "files of an ended run";
  IoFaults none;
  run_with(none, cold(ranks), "straight");
  run_with(none, cold(ranks), "run", "");
  int tensors = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint("straight", 6))) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(bytes_of(entry.path().string()) == bytes_of(checkpoint("run", 6) + "/" + name))
        << name;
    ++tensors;
  }
  EXPECT_GT(tensors, 1);
}

}  // namespace
}  // namespace weft::test
