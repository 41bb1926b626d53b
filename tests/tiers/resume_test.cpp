// Stopping and continuing with tiers: checkpoints know nothing of where the state lived.
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/train/run_fixture.h"
#include "weft/base/error.h"

namespace weft::test {
namespace {

using Keys = std::vector<std::string>;

class TierRuns : public RunTest {
 protected:
  /// Placements whose runs must be one run. Folder "cold" of the test is the cold tier.
  std::vector<std::pair<std::string, Keys>> placements() const {
    const std::string nvme = "memory.nvme=[\"" + path("cold") + "\"]";
    return {{"device", {}},
            {"host", {"offload.optimizer=host", "offload.gradients=host"}},
            {"nvme", {nvme, "offload.optimizer=nvme", "offload.prefetch=98304"}},
            {"late", {nvme, "offload.optimizer=nvme", "offload.late_update=on"}},
            {"all",
             {nvme, "offload.optimizer=nvme", "offload.weights=nvme", "offload.gradients=nvme",
              "offload.activations=nvme", "offload.update_on=device", "offload.late_update=on"}}};
  }

  Config tiers(const Keys& more, Keys keys = {}) const {
    keys.insert(keys.end(), more.begin(), more.end());
    keys.insert(keys.end(), {"precision.compute=bf16", "model.dropout=0.1"});
    return config(keys);
  }

  static void expect_same_steps(const RunMetrics& a, const RunMetrics& b) {
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << a.steps[i].step;
      EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << a.steps[i].step;
    }
  }

  /// Everything below `folder`, as one string.
  static std::string everything_in(const std::string& folder) {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) all += bytes_of(entry.path().string());
    }
    return all;
  }
};

TEST_F(TierRuns, ResumedInAnyTierEqualsTheStraightRunToTheBit) {
  const RunMetrics straight = run(tiers({}), "straight");
  for (const auto& [first, first_keys] : placements()) {
    const RunMetrics whole = run(tiers(first_keys), "whole-" + first);
    expect_same_steps(whole, straight);
    expect_same_checkpoint("straight", "whole-" + first, 6);
    run(tiers(first_keys, {"train.steps=3"}), first);
    for (const auto& [second, second_keys] : placements()) {
      SCOPED_TRACE(first + " then " + second);
      const std::string name = first + "-" + second;
      const RunMetrics resumed = run(tiers(second_keys), name, checkpoint(first, 3));
      ASSERT_EQ(resumed.steps.size(), 3u);
      EXPECT_EQ(resumed.steps.back().loss, straight.steps.back().loss);
      expect_same_checkpoint("straight", name, 6);
    }
  }
}

TEST_F(TierRuns, StepsLostAfterTheCheckpointAreTakenAgain) {
  // The run stops two steps behind its checkpoint, with an update that waits.
  const RunMetrics straight = run(tiers({}), "straight");
  for (const auto& [name, keys] : placements()) {
    SCOPED_TRACE(name);
    run(tiers(keys, {"train.steps=5", "checkpoint.every_steps=3", "checkpoint.final=false"}), name);
    EXPECT_FALSE(fs::exists(checkpoint(name, 5)));
    expect_same_steps(run(tiers(keys), name, ""), straight);
    expect_same_checkpoint("straight", name, 6);
  }
}

TEST_F(TierRuns, EvaluationAndSavesBetweenStepsChangeNothing) {
  write_text("valid.jsonl", "{\"text\":\"a tale that is told again and again\"}\n");
  const Keys often = {"data.valid=[\"" + path("valid.jsonl") + "\"]", "train.eval_every=1",
                      "checkpoint.every_steps=2"};
  const RunMetrics straight = run(tiers({}, often), "straight");
  for (const auto& [name, keys] : placements()) {
    SCOPED_TRACE(name);
    const RunMetrics got = run(tiers(keys, often), name);
    expect_same_steps(got, straight);
    ASSERT_EQ(got.evals.size(), straight.evals.size());
    for (size_t i = 0; i < got.evals.size(); ++i) {
      EXPECT_EQ(got.evals[i].loss, straight.evals[i].loss) << i;
    }
    for (const int64_t step : {2, 4, 6}) expect_same_checkpoint("straight", name, step);
  }
}

TEST_F(TierRuns, B81_CheckpointsDoNotNeedTheColdFolder) {
  run(tiers({}), "straight");
  for (const auto& [name, keys] : placements()) {
    if (keys.empty() || name == "host") continue;
    SCOPED_TRACE(name);
    run(tiers(keys, {"train.steps=3"}), name);
    EXPECT_TRUE(fs::exists(path("cold")));
    EXPECT_TRUE(fs::is_empty(path("cold"))) << "files of an ended run";
    fs::remove_all(path("cold"));
    EXPECT_EQ(everything_in(checkpoint(name, 3)).find("weft-cold"), std::string::npos);
    Keys elsewhere = keys;
    elsewhere[0] = "memory.nvme=[\"" + path("other") + "\"]";
    const std::vector<std::pair<std::string, Keys>> ways = {
        {"other", elsewhere}, {"none", {}}, {"host", {"offload.optimizer=host"}}};
    for (const auto& [way, way_keys] : ways) {
      run(tiers(way_keys), name + "-" + way, checkpoint(name, 3));
      expect_same_checkpoint("straight", name + "-" + way, 6);
    }
    // Another number of ranks: the same model up to the order of sums.
    Keys ranks = elsewhere;
    ranks.insert(ranks.end(), {"parallel.data=2", "parallel.zero=1", "train.accumulation=1"});
    const RunMetrics two = run(tiers(ranks), name + "-two", checkpoint(name, 3));
    const RunMetrics one = read_metrics(path("straight") + "/metrics.jsonl");
    ASSERT_EQ(two.steps.size(), 3u);
    EXPECT_NEAR(two.steps[0].loss, one.steps[3].loss, 2e-3 * one.steps[3].loss);
    EXPECT_NEAR(two.steps[2].loss, one.steps[5].loss, 2e-2 * one.steps[5].loss);
  }
}

TEST_F(TierRuns, B06_KilledInTheMiddleItGoesOnAndRemovesWhatWasLeft) {
  const Keys keys = placements().back().second;
  const Keys saves = {"checkpoint.every_steps=1", "checkpoint.keep=2"};
  // The child never ends by itself: it gets more time until it was killed behind its third save.
  std::optional<CheckpointEntry> newest;
  for (int64_t milliseconds = 200; milliseconds < 60'000; milliseconds *= 2) {
    fs::remove_all(path("killed"));
    Keys endless = saves;
    endless.push_back("train.steps=100000");
    const pid_t child = fork();
    if (child == 0) {
      itimerval timer = {};
      timer.it_value.tv_sec = milliseconds / 1000;
      timer.it_value.tv_usec = milliseconds % 1000 * 1000;
      setitimer(ITIMER_REAL, &timer, nullptr);  // SIGALRM ends the process as SIGKILL would
      try {
        run(tiers(keys, endless), "killed");
      } catch (const std::exception&) {
      }
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    newest = newest_checkpoint(posix_files(), path("killed") + "/checkpoints").entry;
    if (newest && newest->step >= 3) break;
  }
  ASSERT_TRUE(newest && newest->step >= 3);
  EXPECT_FALSE(fs::is_empty(path("cold"))) << "the killed run left nothing to remove";
  const std::string steps = "train.steps=" + std::to_string(newest->step + 3);
  Keys rest = saves;
  rest.push_back(steps);
  run(tiers(keys, rest), "killed", "");
  EXPECT_TRUE(fs::is_empty(path("cold")));
  run(tiers({}, {steps}), "straight");
  expect_same_checkpoint("straight", "killed", newest->step + 3);
}

TEST_F(TierRuns, B82_UsedBytesArePlannedBytes) {
  for (const auto& [name, keys] : placements()) {
    SCOPED_TRACE(name);
    const RunMetrics metrics = run(tiers(keys), name);
    const Json plan = read_json_file(path(name) + "/plan.json");
    const Json& rank = plan.at("ranks").as_array().at(0);
    for (const StepRecord& step : metrics.steps) {
      EXPECT_EQ(step.device_peak_bytes, rank.at("device").at("peak_bytes").as_int());
      EXPECT_EQ(step.host_bytes, rank.at("host").at("peak_bytes").as_int());
      EXPECT_EQ(step.nvme_bytes, rank.at("nvme").at("peak_bytes").as_int());
    }
    const bool cold = name != "device" && name != "host";
    EXPECT_EQ(metrics.steps[1].nvme_read_bytes > 0, cold);
    EXPECT_EQ(metrics.steps[1].nvme_write_bytes > 0, cold);
  }
}

}  // namespace
}  // namespace weft::test
