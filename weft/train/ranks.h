// The ranks of a job: how many there are, who runs them.
#pragma once

#include <cstdint>
#include <functional>

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

/// Consecutive ranks that share a node under a launcher; 0 = all of them.
int64_t ranks_per_node();

}  // namespace weft
