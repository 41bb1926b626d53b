// Stopping and continuing: a resumed run is the uninterrupted run, to the bit.
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/train/run_fixture.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft::test {
namespace {

class Resume : public RunTest {};

/// Ends this process like SIGKILL does, without any clean-up, after some microseconds.
void die_after(uint64_t microseconds) {
  itimerval timer = {};
  timer.it_value.tv_usec = static_cast<suseconds_t>(microseconds);
  setitimer(ITIMER_REAL, &timer, nullptr);  // the default action of SIGALRM
}

void expect_same_steps(const RunMetrics& a, const RunMetrics& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].step, b.steps[i].step);
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << a.steps[i].step;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << a.steps[i].step;
    EXPECT_EQ(a.steps[i].tokens_total, b.steps[i].tokens_total);
    EXPECT_EQ(a.steps[i].samples_total, b.steps[i].samples_total);
  }
}

TEST_F(Resume, B38_ResumedRunEqualsTheStraightOneToTheBit) {
  for (const std::string compute : {"fp32", "bf16"}) {
    for (const std::string optimizer : {"adamw", "sgd"}) {
      std::vector<std::string> keys = {"precision.compute=" + compute, "model.dropout=0.2",
                                       "optimizer.name=" + optimizer, "optimizer.lr=1e-2"};
      if (optimizer == "sgd") keys.push_back("optimizer.momentum=0.9");
      const std::string tag = compute + optimizer;
      const RunMetrics straight = run(config(keys), "straight-" + tag);
      std::vector<std::string> first = keys;
      first.push_back("train.steps=3");
      run(config(first), "halves-" + tag);
      const RunMetrics resumed = run(config(keys), "halves-" + tag, "");
      expect_same_steps(straight, resumed);
      expect_same_checkpoint("straight-" + tag, "halves-" + tag, 6);
    }
  }
}

TEST_F(Resume, B38_ExpertsContinueToTheBit) {
  const std::vector<std::vector<std::string>> variants = {
      {"model.router_score=sigmoid", "model.router_bias_rate=0.01", "model.num_shared_experts=1"},
      {"model.capacity_factor=0.75", "precision.compute=bf16"}};
  for (size_t i = 0; i < variants.size(); ++i) {
    std::vector<std::string> keys = {"model.family=moe", "model.moe_intermediate_size=24",
                                     "model.num_experts=4", "model.num_experts_per_tok=2"};
    keys.insert(keys.end(), variants[i].begin(), variants[i].end());
    const std::string tag = std::to_string(i);
    const RunMetrics straight = run(config(keys), "straight-" + tag);
    std::vector<std::string> first = keys;
    first.push_back("train.steps=3");
    run(config(first), "halves-" + tag);
    const RunMetrics resumed = run(config(keys), "halves-" + tag, "");
    expect_same_steps(straight, resumed);
    expect_same_checkpoint("straight-" + tag, "halves-" + tag, 6);
    for (size_t step = 0; step < straight.steps.size(); ++step) {
      EXPECT_EQ(straight.steps[step].expert_tokens, resumed.steps[step].expert_tokens);
      EXPECT_EQ(straight.steps[step].dropped_tokens, resumed.steps[step].dropped_tokens);
      EXPECT_EQ(straight.steps[step].aux_loss, resumed.steps[step].aux_loss);
    }
  }
}

TEST_F(Resume, B42_StepsAfterTheCheckpointAreSuperseded) {
  run(config({"train.steps=5", "checkpoint.every_steps=3", "checkpoint.final=false"}), "run");
  EXPECT_FALSE(fs::exists(checkpoint("run", 5)));
  const RunMetrics metrics = run(config(), "run", "");
  ASSERT_EQ(metrics.steps.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(metrics.steps[i].step, static_cast<int64_t>(i) + 1);
  int resumes = 0;
  for (const EventRecord& event : metrics.events) {
    if (event.kind != EventKind::resume) continue;
    ++resumes;
    EXPECT_EQ(event.step, 3);
  }
  EXPECT_EQ(resumes, 1);
}

TEST_F(Resume, B06_NothingToResumeIsRefused) {
  EXPECT_THROW(run(config(), "empty", ""), InputError);
  EXPECT_FALSE(fs::exists(path("empty") + "/metrics.jsonl"));
}

TEST_F(Resume, B06_KilledAtAnyMomentTheNextRunContinues) {
  const RngStream random(3, "kill");
  const std::vector<std::string> keys = {"train.steps=60", "checkpoint.every_steps=1",
                                         "checkpoint.keep=2"};
  bool done = false;
  for (uint64_t attempt = 0; attempt < 30 && !done; ++attempt) {
    const NewestCheckpoint before = newest_checkpoint(posix_files(), path("run") + "/checkpoints");
    const pid_t child = fork();
    if (child == 0) {
      die_after(20000 + random.below(attempt, 280000));
      const bool fresh = !before.entry.has_value();
      if (fresh) fs::remove_all(path("run"));
      try {
        run(config(keys), "run", fresh ? std::optional<std::string>() : "");
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0) << "attempt " << attempt << " failed to continue";
      done = true;
    }
    const NewestCheckpoint after = newest_checkpoint(posix_files(), path("run") + "/checkpoints");
    if (before.entry) {
      ASSERT_TRUE(after.entry.has_value());
      EXPECT_GE(after.entry->step, before.entry->step);
    }
  }
  const NewestCheckpoint newest = newest_checkpoint(posix_files(), path("run") + "/checkpoints");
  if (!newest.entry) return;  // every attempt was killed before its first save
  run(config(keys), "run", "");
  run(config(keys), "straight");
  expect_same_checkpoint("straight", "run", 60);
}

TEST_F(Resume, B62_ChangedKeysTakeEffectOrAreRefused) {
  run(config({"train.steps=3"}), "run");
  for (const char* key : {"seed=8", "train.micro_batch=4", "model.hidden_size=32", "data.seq_len=8",
                          "precision.compute=bf16"}) {
    fs::copy(path("run"), path("copy"), fs::copy_options::recursive);
    try {
      run(config({key}), "copy", "");
      ADD_FAILURE() << key << " was accepted";
    } catch (const UsageError& error) {
      const std::string name = std::string(key).substr(0, std::string(key).find('='));
      const std::string shown = name == "train.micro_batch" ? "train.global_batch" : name;
      EXPECT_NE(std::string(error.what()).find(shown), std::string::npos) << error.what();
    }
    fs::remove_all(path("copy"));
  }
  const RunMetrics slower = run(config({"optimizer.lr=1e-3"}), "run", "");
  EXPECT_DOUBLE_EQ(slower.steps[2].lr, 1e-2);
  EXPECT_DOUBLE_EQ(slower.steps[3].lr, 1e-3);
}

TEST_F(Resume, AFolderThatHoldsARunIsNotOverwritten) {
  run(config({"train.steps=1"}), "run");
  EXPECT_THROW(run(config(), "run"), UsageError);
}

TEST_F(Resume, FromAnotherRunOrACheckpointPath) {
  run(config({"train.steps=3"}), "first");
  const RunMetrics second = run(config(), "second", checkpoint("first", 3));
  EXPECT_EQ(second.steps.front().step, 4);
  run(config(), "straight");
  expect_same_checkpoint("straight", "second", 6);
}

}  // namespace
}  // namespace weft::test
