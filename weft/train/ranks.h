// The ranks of a job: how many there are, who runs them, where they sit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/comm/launch.h"
#include "weft/config/config.h"

namespace weft {

/// data x op x pipeline.
int world_of(const ParallelConfig& parallel);

/// Runs `body` once per rank of the configuration (comm/launch.h): on threads, or in this process
/// as the rank that an MPI launcher made it. Lines of the log that every rank would say come from
/// rank 0 alone.
int run_on_ranks(const Config& config, const std::function<int(Communicator&)>& body);

/// Verbs that use a model without training it do so on one rank: removes all parallel settings.
void use_one_rank(Config& config);

/// A mesh axis of more than one rank: do ranks that work together on it sit in different nodes?
struct AxisReach {
  std::string axis;
  int64_t size = 1;
  bool crosses_nodes = false;
};
/// The axes when each node holds `local_size` consecutive ranks.
std::vector<AxisReach> axis_reach(const ParallelConfig& parallel, int local_size);
/// Under a launcher: logs which axes leave a node, and warns when op, the busiest, does.
void log_axis_reach(const ParallelConfig& parallel, const Launch& launch);

}  // namespace weft
