// Reads how the process was started from the environment of MPI launchers.
#include "weft/comm/launch.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "weft/base/error.h"

namespace weft {
namespace {

[[noreturn]] void contradiction(const std::string& got, const std::string& expected) {
  throw UsageError("launch",
                   fmt::format("got {}, expected {}; try mpirun or srun without variables "
                               "of another launcher in the environment",
                               got, expected));
}

/// The number in an environment variable; absent when it is not set.
std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view view = text;
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0) {
    contradiction(fmt::format("{}={}", name, text), "a number");
  }
  return value;
}

/// The variables in which one kind of launcher tells rank and size.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kOpenMpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::optional<Launch> read_launcher(const Names& names) {
  const std::optional<int> rank = number(names.rank);
  const std::optional<int> size = number(names.size);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    contradiction(fmt::format("{} without {}", rank ? names.rank : names.size,
                              rank ? names.size : names.rank),
                  "both");
  }
  Launch launch;
  launch.kind = LaunchKind::mpi;
  launch.launcher = names.launcher;
  launch.rank = *rank;
  launch.world = *size;
  launch.local_rank = number(names.local_rank).value_or(0);
  launch.local_size = number(names.local_size).value_or(1);
  if (launch.rank >= launch.world) {
    contradiction(fmt::format("{}={} and {}={}", names.rank, *rank, names.size, *size),
                  "a rank below the size");
  }
  if (launch.local_rank >= launch.local_size) {
    contradiction(fmt::format("{}={} and {}={}", names.local_rank, launch.local_rank,
                              names.local_size, launch.local_size),
                  "a rank below the size");
  }
  return launch;
}

/// Entry `node` of a list such as "2(x3),1"; absent when it has none.
std::optional<int> tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    int tasks = 0;
    auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), tasks);
    if (error != std::errc()) return std::nullopt;
    list.remove_prefix(static_cast<size_t>(end - list.data()));
    int nodes = 1;
    if (list.substr(0, 2) == "(x") {
      list.remove_prefix(2);
      const auto repeat = std::from_chars(list.data(), list.data() + list.size(), nodes);
      if (repeat.ec != std::errc()) return std::nullopt;
      list.remove_prefix(static_cast<size_t>(repeat.ptr - list.data()));
      if (list.empty() || list[0] != ')') return std::nullopt;
      list.remove_prefix(1);
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (list.empty() || list[0] != ',') return std::nullopt;
    list.remove_prefix(1);
  }
  return std::nullopt;
}

/// Only tasks of a step are ranks: a batch script has SLURM_PROCID too, but no step. A step of one
/// task is an ordinary shell.
std::optional<Launch> read_slurm() {
  const std::optional<int> rank = number("SLURM_PROCID");
  const std::optional<int> size = number("SLURM_STEP_NUM_TASKS");
  if (!rank || !size || !number("SLURM_STEP_ID") || *size <= 1) return std::nullopt;
  const std::optional<int> local = number("SLURM_LOCALID");
  if (*rank >= *size) {
    contradiction(fmt::format("SLURM_PROCID={} and SLURM_STEP_NUM_TASKS={}", *rank, *size),
                  "a rank below the size");
  }
  Launch launch;
  launch.kind = LaunchKind::mpi;
  launch.launcher = "srun";
  launch.rank = *rank;
  launch.world = *size;
  launch.local_rank = local.value_or(0);
  const char* list = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  if (list == nullptr) list = std::getenv("SLURM_TASKS_PER_NODE");
  if (list != nullptr) {
    launch.local_size = tasks_of_node(list, number("SLURM_NODEID").value_or(0)).value_or(1);
  }
  if (launch.local_rank >= launch.local_size) launch.local_size = launch.local_rank + 1;
  return launch;
}

}  // namespace

Launch detect_launch() {
  const std::optional<Launch> open_mpi = read_launcher(kOpenMpi);
  const std::optional<Launch> pmi = read_launcher(kPmi);
  if (open_mpi && pmi && (open_mpi->rank != pmi->rank || open_mpi->world != pmi->world)) {
    contradiction(fmt::format("rank {} of {} from OMPI_COMM_WORLD_* and rank {} of {} from PMI_*",
                              open_mpi->rank, open_mpi->world, pmi->rank, pmi->world),
                  "one launcher");
  }
  if (open_mpi) return *open_mpi;
  // srun with its PMI plugins sets PMI_* as well: the step then tells the place on the node.
  const std::optional<Launch> slurm = read_slurm();
  if (slurm && pmi && (slurm->rank != pmi->rank || slurm->world != pmi->world)) return *pmi;
  if (slurm) return *slurm;
  if (pmi) return *pmi;
  if (number("PMIX_RANK")) {
    contradiction("PMIX_RANK without the number of ranks",
                  "OMPI_COMM_WORLD_SIZE or SLURM_STEP_NUM_TASKS beside it");
  }
  return {};
}

}  // namespace weft
