// Whole runs whose ranks are processes that mpirun started.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/train/run_fixture.h"

namespace weft::test {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct Outcome {
  int code = -1;
  std::string output;  // stdout and stderr of all
};

class Launch : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    // Variables instead of options: other launchers ignore them.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    write_text("config.toml", base_config());
  }

  /// "weft ARGUMENTS" on `ranks` processes; each leaves its id in pid-RANK. A hang is code 124.
  std::string command(int ranks, const std::string& arguments) const {
    const std::string shell =
        "echo $$ > " + path("pid-") + "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.tmp; mv " + path("pid-") +
        "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.tmp " + path("pid-") +
        "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec " WEFT_PROGRAM " " + arguments;
    return "timeout -k 5 200 " WEFT_MPIEXEC " -n " + std::to_string(ranks) + " sh -c '" + shell +
           "' 2>&1";
  }

  Outcome finish(FILE* pipe) const {
    Outcome outcome;
    char buffer[4096];
    for (size_t size = 0; (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
      outcome.output.append(buffer, size);
    }
    const int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return outcome;
  }

  Outcome launch(int ranks, const std::string& arguments) const {
    return finish(popen(command(ranks, arguments).c_str(), "r"));
  }

  std::string train_arguments(const std::string& run_name, const std::string& more) const {
    return "train " + path("config.toml") + " --out " + path(run_name) + " " + more;
  }

  pid_t pid_of(int rank) const {
    return std::atoi(bytes_of(path("pid-" + std::to_string(rank))).c_str());
  }

  /// Returns when the run has recorded `steps` steps; false when it ended before.
  bool await_steps(const std::string& run_name, int steps) const {
    const std::string file = path(run_name) + "/metrics.jsonl";
    while (count(bytes_of(file), "\"type\":\"step\"") < steps) {
      if (fs::exists(path("pid-0")) && !runs(pid_of(0))) return false;
      std::this_thread::yield();
    }
    return true;
  }

  /// False also for a process whose parent has not read its end.
  static bool runs(pid_t pid) {
    const std::string text = bytes_of("/proc/" + std::to_string(pid) + "/stat");
    const size_t name_end = text.rfind(')');  // "pid (name) state …"
    return name_end != std::string::npos && name_end + 2 < text.size() &&
           std::string("ZX").find(text[name_end + 2]) == std::string::npos;
  }

  /// Is the process gone within the 5 seconds that a failure may take? mpirun may end a moment
  /// before the processes it has killed.
  static bool ends(pid_t pid) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (runs(pid)) {
      if (std::chrono::steady_clock::now() > limit) return false;
      poll(nullptr, 0, 10);
    }
    return true;
  }
};

TEST_F(Launch, ProcessesTrainTheModelOfThreads) {
  const std::vector<std::string> keys = {"parallel.data=2", "parallel.op=1", "train.accumulation=1",
                                         "data.valid_fraction=0.1"};
  std::string set;
  for (const std::string& key : keys) set += " --set " + key;
  const Outcome outcome = launch(2, train_arguments("processes", set));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "step 6/6"), 1) << outcome.output;
  const RunMetrics threads = run(config(keys), "threads");
  const RunMetrics processes = read_metrics(path("processes") + "/metrics.jsonl");
  ASSERT_EQ(processes.steps.size(), threads.steps.size());
  for (size_t i = 0; i < threads.steps.size(); ++i) {
    EXPECT_EQ(processes.steps[i].loss, threads.steps[i].loss);
    EXPECT_EQ(processes.steps[i].grad_norm, threads.steps[i].grad_norm);
    EXPECT_EQ(processes.steps[i].device_peak_bytes, threads.steps[i].device_peak_bytes);
  }
  ASSERT_EQ(processes.evals.size(), 1u);
  EXPECT_EQ(processes.evals[0].loss, threads.evals[0].loss);

  const Outcome together = launch(2, "eval " + path("processes") + " --json");
  EXPECT_EQ(together.code, 0) << together.output;
  EXPECT_EQ(count(together.output, "\"perplexity\""), 1) << together.output;
  const Outcome plan = launch(2, "plan " + path("processes") + " --json");
  EXPECT_EQ(plan.code, 0) << plan.output;
  EXPECT_EQ(count(plan.output, "\"fits\""), 1) << plan.output;
}

TEST_F(Launch, MistakesArePrintedOnce) {
  const Outcome key = launch(2, train_arguments("run", "--set train.stepz=1"));
  EXPECT_EQ(key.code, 2) << key.output;
  EXPECT_EQ(count(key.output, "weft: error: "), 1) << key.output;
  const Outcome verb = launch(2, "trane");
  EXPECT_EQ(verb.code, 2) << verb.output;
  EXPECT_EQ(count(verb.output, "weft: error: "), 1) << verb.output;
  const Outcome ranks = launch(3, train_arguments("run", "--set parallel.data=2"));
  EXPECT_EQ(ranks.code, 2) << ranks.output;
  EXPECT_EQ(count(ranks.output, "weft: error: [parallel] got 3 ranks"), 1) << ranks.output;
  const Outcome resume = launch(2, train_arguments("run", "--set parallel.data=2 --resume"));
  EXPECT_EQ(resume.code, 3) << resume.output;
  EXPECT_EQ(count(resume.output, "weft: error: "), 1) << resume.output;
}

TEST_F(Launch, B74_ASignalToOneRankStopsAll) {
  const std::string keys = "--set parallel.data=2 --set train.steps=1000000";
  for (const int rank : {1, 0}) {
    fs::remove_all(path("run"));
    FILE* pipe = popen(command(2, train_arguments("run", keys)).c_str(), "r");
    ASSERT_TRUE(await_steps("run", 3));
    kill(pid_of(rank), SIGTERM);
    const Outcome outcome = finish(pipe);
    EXPECT_EQ(outcome.code, 75) << outcome.output;
    EXPECT_EQ(count(outcome.output, "weft: error: "), 1) << outcome.output;
    const RunMetrics metrics = read_metrics(path("run") + "/metrics.jsonl");
    const int64_t step = metrics.steps.back().step;
    const NewestCheckpoint newest = newest_checkpoint(posix_files(), path("run") + "/checkpoints");
    ASSERT_TRUE(newest.entry.has_value());
    EXPECT_EQ(newest.entry->step, step);
    EXPECT_EQ(count(bytes_of(path("run") + "/metrics.jsonl"), "\"type\":\"checkpoint\""), 1);
    const RunMetrics resumed =
        run(config({"parallel.data=2", "train.steps=" + std::to_string(step + 1)}), "run", "");
    EXPECT_EQ(resumed.steps.back().step, step + 1);
    fs::remove(path("pid-0"));
    fs::remove(path("pid-1"));
  }
}

TEST_F(Launch, B09_NobodyOutlivesAKilledRank) {
  const std::string keys =
      "--set parallel.data=2 --set train.steps=1000000 --set checkpoint.every_steps=2";
  for (const int rank : {1, 0}) {
    fs::remove_all(path("run"));
    FILE* pipe = popen(command(2, train_arguments("run", keys)).c_str(), "r");
    ASSERT_TRUE(await_steps("run", 5));
    const pid_t pids[] = {pid_of(0), pid_of(1)};
    kill(pids[rank], SIGKILL);
    const Outcome outcome = finish(pipe);
    EXPECT_NE(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.code, 124) << outcome.output;  // a hang
    for (const pid_t pid : pids) EXPECT_TRUE(ends(pid)) << outcome.output;
    const RunMetrics resumed = run(config({"parallel.data=2", "train.steps=1"}), "run", "");
    EXPECT_GE(resumed.events.size(), 2u);
    // What the killed processes left in the folder of checkpoints is gone.
    for (const auto& entry : fs::directory_iterator(path("run") + "/checkpoints")) {
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
    }
    fs::remove(path("pid-0"));
    fs::remove(path("pid-1"));
  }
}

}  // namespace
}  // namespace weft::test
