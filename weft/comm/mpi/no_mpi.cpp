// Stands in for the mpi communicator in builds without it.
#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/comm/comm_entries.h"

namespace weft {

int run_mpi_ranks(const RankOptions&, const Launch& launch, const RankBody&) {
  throw ResourceError("launch",
                      fmt::format("got a start by {} as rank {} of {}, expected a build "
                                  "with MPI; try the ranks as threads of one process: "
                                  "start weft without {}",
                                  launch.launcher, launch.rank, launch.world, launch.launcher));
}

}  // namespace weft
