#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/comm/comm_entries.h"

namespace weft {

int run_ranks(const RankOptions& options, const RankBody& body) {
  if (options.world < 1) {
    throw UsageError("parallel", fmt::format("got {} ranks, expected at least 1", options.world));
  }
  const Launch launch = detect_launch();
  if (launch.kind == LaunchKind::mpi) return run_mpi_ranks(options, launch, body);
  return run_thread_ranks(options, body);
}

}  // namespace weft
