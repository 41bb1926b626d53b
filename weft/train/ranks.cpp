#include "weft/train/ranks.h"

#include <fmt/core.h>

#include "weft/base/log.h"

namespace weft {

int world_of(const ParallelConfig& parallel) {
  return static_cast<int>(parallel.data * parallel.op * parallel.pipeline);
}

int run_on_ranks(const Config& config, const std::function<int(Communicator&)>& body) {
  return run_ranks(
      {.world = world_of(config.parallel), .stall_seconds = config.alarm.stall_seconds}, body);
}

void use_one_rank(Config& config) { config.parallel = ParallelConfig{}; }

std::vector<AxisReach> axis_reach(const ParallelConfig& parallel, int local_size) {
  std::vector<AxisReach> axes;
  const int64_t world = world_of(parallel);
  // Ranks of an axis are `stride` apart; docs/sharding.md.
  int64_t stride = 1;
  for (const auto& [name, size] :
       {std::pair<const char*, int64_t>{"op", parallel.op}, {"data", parallel.data}}) {
    if (size > 1) {
      AxisReach& axis = axes.emplace_back(AxisReach{name, size, false});
      for (int64_t rank = 0; rank < world; ++rank) {
        if (rank / stride % size != 0) continue;
        const int64_t last = rank + (size - 1) * stride;
        axis.crosses_nodes |= rank / local_size != last / local_size;
      }
    }
    stride *= size;
  }
  return axes;
}

void log_axis_reach(const ParallelConfig& parallel, const Launch& launch) {
  if (launch.kind != LaunchKind::mpi) return;
  for (const AxisReach& axis : axis_reach(parallel, launch.local_size)) {
    log_info("axis {} of {} ranks {} ({} ranks per node)", axis.axis, axis.size,
             axis.crosses_nodes ? "crosses nodes" : "stays inside a node", launch.local_size);
    if (axis.axis == "op" && axis.crosses_nodes) {
      log_warning(
          "axis op, the busiest, crosses nodes; try a parallel.op that divides the {} ranks of a "
          "node",
          launch.local_size);
    }
  }
}

}  // namespace weft
