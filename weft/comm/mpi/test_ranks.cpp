// The program that mpi_launch_test starts as four ranks: `test_ranks SCENARIO`.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/comm_test_util.h"
#include "weft/comm/launch.h"

namespace weft {
namespace {

constexpr int kWrong = 99;  // exit code when a check fails

const CommCase kSum = {.kind = CollectiveKind::all_reduce, .shapes = {{1000}}};
// Several rounds.
const CommCase kLongSum = {.kind = CollectiveKind::all_reduce,
                           .shapes = {{5 * kCollectiveChunkBytes / 4}}};

bool wrong(const Communicator& comm, const std::string& what) {
  if (!what.empty()) std::printf("wrong: rank %d: %s\n", comm.rank(), what.c_str());
  return !what.empty();
}

int run_cases(Communicator& comm) {
  bool bad = comm.world() != 4 || comm.name() != "mpi";
  for (const CommCase& c : comm_cases()) bad |= wrong(comm, run_case(comm, c, all_ranks(4)));
  for (const CommCase& c : large_comm_cases()) bad |= wrong(comm, run_case(comm, c, all_ranks(4)));
  // A mesh of 2 x 2, one lane per axis; then groups of every size.
  const int rank = comm.rank();
  const std::vector<int32_t> row = {rank / 2 * 2, rank / 2 * 2 + 1};
  const std::vector<int32_t> column = {rank % 2, rank % 2 + 2};
  bool bad_lane = false;
  std::thread lane([&] {
    for (const CommCase& c : comm_cases()) {
      bad_lane |= wrong(comm, run_case(comm, c, column, "data"));
    }
  });
  for (const CommCase& c : comm_cases()) bad |= wrong(comm, run_case(comm, c, row));
  lane.join();
  for (const CommCase& c : comm_cases()) {
    bad |= wrong(comm, run_case(comm, c, {rank}));
    if (rank != 1) bad |= wrong(comm, run_case(comm, c, {0, 2, 3}));
  }
  return bad || bad_lane ? kWrong : 0;
}

int run_control(Communicator& comm) {
  bool bad_lane = false;
  const auto talk = [&](Channel channel, const std::string& word, bool& bad) {
    for (int i = 0; i < 20; ++i) {
      // Sizes on both sides of what MPI buffers.
      const auto message = [&](int rank) {
        return fmt::format("{} {} {} ", word, rank, i) +
               std::string(static_cast<size_t>(rank + 1) << (i % 18), 'x');
      };
      const std::vector<std::string> all = comm.gather(channel, message(comm.rank()));
      bad |= all.size() != (comm.rank() == 0 ? 4U : 0U);
      for (size_t r = 0; r < all.size(); ++r) bad |= all[r] != message(static_cast<int>(r));
      comm.barrier(channel);
      bad |= comm.broadcast(channel, message(comm.rank())) != message(0);
    }
  };
  bool bad = false;
  std::thread other([&] { talk(Channel::checkpoint, "save", bad_lane); });
  talk(Channel::train, "step", bad);
  other.join();
  return bad || bad_lane ? kWrong : 0;
}

[[noreturn]] void work_for_ever() {
  while (true) std::this_thread::yield();
}

/// Rank 2 fails in some way while the others are in the midst of collectives.
template <class Fail>
int with_failure(Communicator& comm, Fail&& fail) {
  const KernelSpec spec = kernel_spec(kLongSum, 4, comm.rank());
  const std::unique_ptr<Kernel> kernel = comm.prepare(spec, all_ranks(4));
  std::vector<float> data(5 * kCollectiveChunkBytes / 4, 0.0F);
  Bytes workspace(static_cast<size_t>(collective_workspace_bytes(collective_spec(spec))));
  const void* in[] = {data.data()};
  void* out[] = {data.data()};
  for (int i = 0; i < 1000000; ++i) {
    if (comm.rank() == 2 && i == 2) fail();
    kernel->run({in, out, workspace.data()});
  }
  return kWrong;
}

int run_scenario(const std::string& name, Communicator& comm) {
  if (name == "cases") return run_cases(comm);
  if (name == "control") return run_control(comm);
  if (name == "world" || name == "nothing") return 0;
  if (name == "result") return 40 + comm.rank() / 4;
  if (name == "log") {
    log_info("from one");
    log_warning("from all");
    return 0;
  }
  if (name == "input") {
    return with_failure(comm, [] { throw InputError("data", "got a bad file"); });
  }
  if (name == "usage") {
    return with_failure(comm, [] { throw UsageError("config", "got a bad key"); });
  }
  if (name == "all-input") throw InputError("config", "got a bad model");
  if (name == "kill") return with_failure(comm, [] { std::raise(SIGKILL); });
  if (name == "stop") return with_failure(comm, [] { std::raise(SIGSTOP); });
  if (name == "abort") {
    return with_failure(comm, [&] {
      std::thread([&] { comm.abort("[lane] got no disk"); }).join();
      run_case(comm, kSum, all_ranks(4));
    });
  }
  if (name == "early") {  // a failure after others have ended well
    if (comm.rank() == 2) throw ResourceError("disk", "got no room");
    return 0;
  }
  if (name == "stuck") {  // a rank that never looks
    if (comm.rank() == 1) work_for_ever();
    if (comm.rank() == 2) throw InputError("data", "got a bad file");
    comm.barrier(Channel::train);
  }
  if (name == "stuck-0") {
    if (comm.rank() == 0) work_for_ever();
    if (comm.rank() == 2) throw InputError("data", "got a bad file");
    comm.barrier(Channel::train);
  }
  if (name == "missing") {  // a rank that does not come to the barrier
    if (comm.rank() == 3) work_for_ever();
    comm.barrier(Channel::train);
  }
  return kWrong;
}

int run(const std::string& name) {
  std::printf("pid %d\n", getpid());
  std::fflush(stdout);
  const bool stalls = name == "stop" || name == "missing";
  const RankOptions options = {.world = name == "world" ? 3 : 4,
                               .stall_seconds = stalls ? 1.0 : 60.0};
  return run_ranks(options, [&](Communicator& comm) { return run_scenario(name, comm); });
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  try {
    return weft::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::printf("thrown: %s\n", error.what());
    return weft::kWrong;
  }
}
