// Who the ranks are: threads of this process, or processes that an MPI launcher started.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "weft/comm/communicator.h"

namespace weft {

enum class LaunchKind : uint8_t { threads, mpi };

/// How this process was started, read from the environment that mpirun and srun set; no MPI call.
struct Launch {
  LaunchKind kind = LaunchKind::threads;
  int rank = 0;        // of this process
  int world = 1;       // processes
  int local_rank = 0;  // among the processes of this node
  int local_size = 1;
  std::string launcher;  // "mpirun", "srun" or "" for threads
};
/// UsageError when the variables contradict each other.
Launch detect_launch();

struct RankOptions {
  int world = 1;               // ranks the configuration asks for
  double stall_seconds = 600;  // a collective that waits longer fails with PeerError
};

/// Runs `body` once per rank: on `world` threads of this process, or, under an MPI launcher, once
/// in this process (UsageError naming both numbers when the launcher's size is not `world`). world
/// 1 without a launcher runs on the calling thread. Returns the result of rank 0 (threads) or of
/// this rank. When a rank throws, all ranks are brought down and the first cause is rethrown here:
/// as it is when it is a UsageError, AlarmError or Interrupted or when every rank failed by itself
/// with the same exit code; otherwise as a PeerError "rank N: cause". Under an MPI launcher nothing
/// is rethrown: one rank logs that error and all return its exit code, since a launcher ends every
/// rank as soon as one has ended badly. A process can be an MPI rank only once.
int run_ranks(const RankOptions& options, const std::function<int(Communicator&)>& body);

/// A communicator of one rank of a world that does not exist: collectives fill their outputs with
/// this rank's own contribution. For plans, benchmarks and tests.
std::unique_ptr<Communicator> make_fake_communicator(int rank, int world);

}  // namespace weft
