// How a process learns who it is, and the communicator of one rank alone.
#include "weft/comm/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "weft/base/error.h"
#include "weft/comm/comm_test_util.h"

namespace weft {
namespace {

using Environment = std::map<std::string, std::string>;

/// Sets the variables, and none of the other launchers', while it lives.
class Variables {
 public:
  explicit Variables(const Environment& values) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
          "MPI_LOCALNRANKS", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID",
          "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASKS_PER_NODE",
          "SLURM_STEP_TASKS_PER_NODE"}) {
      const char* before = std::getenv(name);
      if (before != nullptr) before_[name] = before;
      unsetenv(name);
      names_.push_back(name);
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::string> names_;
  Environment before_;
};

/// "kind launcher rank/world local_rank/local_size".
std::string detected(const Environment& values) {
  const Variables variables(values);
  try {
    const Launch launch = detect_launch();
    return fmt::format("{} {} {}/{} {}/{}", launch.kind == LaunchKind::mpi ? "mpi" : "threads",
                       launch.launcher, launch.rank, launch.world, launch.local_rank,
                       launch.local_size);
  } catch (const UsageError& error) {
    return error.what();
  }
}

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}
#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

TEST(Launch, WithoutALauncherRanksAreThreads) { EXPECT_EQ(detected({}), "threads  0/1 0/1"); }

TEST(Launch, OpenMpi) {
  const Environment ranks = {{"OMPI_COMM_WORLD_RANK", "5"},
                             {"OMPI_COMM_WORLD_SIZE", "8"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                             {"PMIX_RANK", "5"}};
  EXPECT_EQ(detected(ranks), "mpi mpirun 5/8 1/4");
  // mpirun starts its daemons by srun: their step is not that of the ranks.
  Environment in_slurm = ranks;
  in_slurm.merge(
      Environment{{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(detected(in_slurm), "mpi mpirun 5/8 1/4");
}

TEST(Launch, Hydra) {
  EXPECT_EQ(detected({{"PMI_RANK", "0"},
                      {"PMI_SIZE", "2"},
                      {"MPI_LOCALRANKID", "0"},
                      {"MPI_LOCALNRANKS", "2"}}),
            "mpi mpirun 0/2 0/2");
}

TEST(Launch, SlurmOnlyInsideAStep) {
  Environment step = {{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "7"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "7"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "2"},
                      {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                      {"PMIX_RANK", "5"}};
  EXPECT_EQ(detected(step), "mpi srun 5/7 1/2");
  step["SLURM_PROCID"] = "6";
  step["SLURM_LOCALID"] = "0";
  step["SLURM_NODEID"] = "3";
  EXPECT_EQ(detected(step), "mpi srun 6/7 0/1");
  step["PMI_RANK"] = "6";
  step["PMI_SIZE"] = "7";
  EXPECT_EQ(detected(step), "mpi srun 6/7 0/1");
  // A batch script, and a shell that srun started.
  EXPECT_EQ(detected({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "0"}}),
            "threads  0/1 0/1");
  EXPECT_EQ(detected({{"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "1"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"}}),
            "threads  0/1 0/1");
}

TEST(Launch, RefusesContradictions) {
  EXPECT_SAYS(detected({{"OMPI_COMM_WORLD_RANK", "1"}}),
              "[launch] got OMPI_COMM_WORLD_RANK without OMPI_COMM_WORLD_SIZE");
  EXPECT_SAYS(detected({{"PMI_SIZE", "2"}}), "got PMI_SIZE without PMI_RANK");
  EXPECT_SAYS(detected({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
              "expected a rank below the size");
  EXPECT_SAYS(detected({{"OMPI_COMM_WORLD_RANK", "0"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              "OMPI_COMM_WORLD_LOCAL_RANK=2 and OMPI_COMM_WORLD_LOCAL_SIZE=2");
  EXPECT_SAYS(detected({{"OMPI_COMM_WORLD_RANK", "one"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
              "got OMPI_COMM_WORLD_RANK=one, expected a number");
  EXPECT_SAYS(detected({{"PMI_RANK", "-1"}, {"PMI_SIZE", "4"}}), "got PMI_RANK=-1");
  EXPECT_SAYS(detected({{"OMPI_COMM_WORLD_RANK", "0"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"PMI_RANK", "1"},
                        {"PMI_SIZE", "4"}}),
              "rank 0 of 4 from OMPI_COMM_WORLD_* and rank 1 of 4 from PMI_*");
  EXPECT_SAYS(
      detected({{"SLURM_PROCID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "7"}}),
      "SLURM_PROCID=7 and SLURM_STEP_NUM_TASKS=7");
  EXPECT_SAYS(detected({{"PMIX_RANK", "3"}}), "got PMIX_RANK without the number of ranks");
}

TEST(FakeCommunicator, FillsOutputsWithItsOwnContribution) {
  const auto comm = make_fake_communicator(1, 3);
  EXPECT_EQ(comm->name(), "fake");
  const auto run = [&](const CommCase& c, const std::vector<float>& input, size_t outputs) {
    std::vector<float> output(outputs, -1.0F);
    const void* in[] = {input.data()};
    void* out[] = {output.data()};
    comm->prepare(kernel_spec(c, 3, 1), all_ranks(3))->run({in, out, nullptr});
    return output;
  };
  using enum CollectiveKind;
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(run({.kind = all_reduce, .shapes = {{6}}}, six, 6), six);
  EXPECT_EQ(run({.kind = reduce_scatter, .shapes = {{2, 3}}, .dim = 1}, six, 2),
            (std::vector<float>{2, 5}));
  EXPECT_EQ(run({.kind = all_gather, .shapes = {{2, 4}}, .dim = 1}, {7, 8}, 8),
            (std::vector<float>{7, 8, 7, 7, 7, 8, 8, 8}));
  // Cut dim 1 of [1, 3], gather dim 0 of 3 rows.
  EXPECT_EQ(run({.kind = all_to_all, .shapes = {{3, 3}}, .dim = 1, .gather_dim = 0}, {1, 2, 3}, 3),
            (std::vector<float>{2, 2, 2}));
  // Nothing of its own: zeros.
  EXPECT_EQ(run({.kind = all_gather, .shapes = {{2}}, .dim = 0, .block = 2}, {}, 2),
            (std::vector<float>{0, 0}));
}

TEST(FakeCommunicator, SpeaksToItself) {
  const auto comm = make_fake_communicator(0, 3);
  EXPECT_EQ(comm->gather(Channel::train, "x"), (std::vector<std::string>{"x", "x", "x"}));
  EXPECT_EQ(comm->broadcast(Channel::checkpoint, "y"), "y");
  EXPECT_TRUE(make_fake_communicator(2, 3)->gather(Channel::train, "x").empty());
  comm->abort("[x] y");
  EXPECT_THROW(comm->barrier(Channel::train), PeerError);
  EXPECT_THROW(make_fake_communicator(3, 3), BugError);
}

}  // namespace
}  // namespace weft
