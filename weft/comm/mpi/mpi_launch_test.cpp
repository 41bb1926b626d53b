// Ranks that are processes, started by mpirun: the cases of all communicators, and every way in
// which one rank may bring down the others.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace weft {
namespace {

struct Outcome {
  int code = -1;
  std::string output;
  int left = 0;  // processes that outlived the launcher
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Does the process run (or sleep, or stand still)? Not so when only its parent has not read its
/// end.
bool runs(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // "pid (name) state ..."
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         std::string("ZXx").find(text[name_end + 2]) == std::string::npos;
}

/// True when the process ends within the 5 s that all ranks have.
bool ends(int pid) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (runs(pid)) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Starts four ranks; a hang ends as code 124.
Outcome launch(const std::string& scenario) {
  // Variables instead of options: other launchers ignore them.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  const std::string command =
      std::string("timeout -k 5 300 " WEFT_MPIEXEC " -n 4 " WEFT_TEST_RANKS " ") + scenario +
      " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t size = 0; (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.output.append(buffer, size);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  for (size_t at = 0; (at = outcome.output.find("pid ", at)) != std::string::npos; at += 4) {
    if (!ends(std::atoi(outcome.output.c_str() + at + 4))) ++outcome.left;
  }
  return outcome;
}

/// One rank tells the cause, once, and all processes are gone.
void expect_failure(const std::string& scenario, int code, const std::string& cause) {
  const Outcome outcome = launch(scenario);
  EXPECT_EQ(outcome.code, code) << outcome.output;
  EXPECT_EQ(count(outcome.output, "weft: error: "), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "weft: error: " + cause), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "pid "), 4) << outcome.output;
  EXPECT_EQ(outcome.left, 0) << outcome.output;
}

void expect_success(const std::string& scenario) {
  const Outcome outcome = launch(scenario);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "wrong"), 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "pid "), 4) << outcome.output;
}

TEST(MpiRanks, MatchTheReference) { expect_success("cases"); }

TEST(MpiRanks, ControlMessagesOfBothChannels) { expect_success("control"); }

TEST(MpiRanks, ReturnTheResultOfTheBody) { EXPECT_EQ(launch("result").code, 40); }

TEST(MpiRanks, OnlyRank0LogsWhatAllWouldSay) {
  const Outcome outcome = launch("log");
  EXPECT_EQ(count(outcome.output, "from one"), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "weft: warning: from all"), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "weft: warning: rank 3: from all"), 1) << outcome.output;
}

TEST(MpiRanksFailure, OfOneRankNamesIt) {
  expect_failure("input", 6, "[comm] rank 2: [data] got a bad file\n");
}

TEST(MpiRanksFailure, FromALaneNamesTheRank) {
  expect_failure("abort", 6, "[comm] rank 2: [lane] got no disk\n");
}

TEST(MpiRanksFailure, AfterOthersEndedWell) {
  expect_failure("early", 6, "[comm] rank 2: [disk] got no room\n");
}

TEST(MpiRanksFailure, ThatConcernsAllKeepsItsKind) {
  expect_failure("usage", 2, "[config] got a bad key\n");
  expect_failure("all-input", 3, "[config] got a bad model\n");
}

TEST(MpiRanksFailure, WrongNumberOfRanks) {
  expect_failure("world", 2, "[parallel] got 4 ranks from mpirun, expected the 3 of");
}

TEST(MpiRanksFailure, ARankThatNeverLooksIsEnded) {
  expect_failure("stuck", 6, "[comm] rank 2: [data] got a bad file\n");
  expect_failure("stuck-0", 6, "[comm] rank 2: [data] got a bad file\n");
}

TEST(MpiRanksFailure, AMissingRankIsNamed) {
  const Outcome outcome = launch("missing");
  EXPECT_EQ(outcome.code, 6) << outcome.output;
  EXPECT_EQ(count(outcome.output,
                  "weft: error: [comm] rank 0: [comm] got no answer from rank 3 in "
                  "barrier on the train channel for 1 s"),
            1)
      << outcome.output;
  EXPECT_EQ(count(outcome.output, "; silent: rank 3\n"), 1) << outcome.output;
  EXPECT_EQ(outcome.left, 0) << outcome.output;
}

TEST(MpiRanksFailure, AStoppedRankIsNamedAndEnded) {
  const Outcome outcome = launch("stop");
  EXPECT_EQ(outcome.code, 6) << outcome.output;
  EXPECT_EQ(count(outcome.output, "got no answer from rank 2 in all_reduce over axis op for 1 s"),
            1)
      << outcome.output;
  EXPECT_EQ(count(outcome.output, "; silent: rank 2\n"), 1) << outcome.output;
  EXPECT_EQ(outcome.left, 0) << outcome.output;
}

TEST(MpiRanksFailure, AKilledRankEndsAll) {
  const Outcome outcome = launch("kill");
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "hangs";
  EXPECT_EQ(count(outcome.output, "pid "), 4) << outcome.output;
  EXPECT_EQ(outcome.left, 0) << outcome.output;
}

}  // namespace
}  // namespace weft
