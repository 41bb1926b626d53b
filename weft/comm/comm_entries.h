// The entry points of the communicators' folders: what run_ranks and they agree on.
#pragma once

#include <functional>

#include "weft/comm/launch.h"

namespace weft {

using RankBody = std::function<int(Communicator&)>;

/// Ranks are threads of this process; rank 0 is the calling one.
int run_thread_ranks(const RankOptions& options, const RankBody& body);

/// This process is one rank; mpi/, or its twin no_mpi.cpp in builds without MPI.
int run_mpi_ranks(const RankOptions& options, const Launch& launch, const RankBody& body);

}  // namespace weft
