#include "weft/train/ranks.h"

namespace weft {

int world_of(const ParallelConfig& parallel) {
  return static_cast<int>(parallel.data * parallel.op * parallel.pipeline);
}

int run_on_ranks(const Config& config, const std::function<int(Communicator&)>& body) {
  return run_ranks(
      {.world = world_of(config.parallel), .stall_seconds = config.alarm.stall_seconds}, body);
}

void use_one_rank(Config& config) { config.parallel = ParallelConfig{}; }

int64_t ranks_per_node() {
  const Launch launch = detect_launch();
  return launch.kind == LaunchKind::mpi ? launch.local_size : 0;
}

}  // namespace weft
