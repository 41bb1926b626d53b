// Runs the ranks of a world as threads of this process.
#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "weft/base/log.h"
#include "weft/comm/comm_entries.h"
#include "weft/comm/thread/thread_world.h"

namespace weft {
namespace {

class ThreadRanks {
 public:
  ThreadRanks(const RankOptions& options, const RankBody& body)
      : world_(options.world, options.stall_seconds),
        body_(body),
        errors_(static_cast<size_t>(options.world)) {}

  int run() {
    std::vector<std::thread> threads;
    try {
      for (int rank = 1; rank < world_.size(); ++rank) {
        threads.emplace_back([this, rank] { run_rank(rank); });
      }
    } catch (const std::system_error& error) {
      fail(0, std::make_exception_ptr(ResourceError(
                  "comm", fmt::format("got {} of {} rank threads: {}; try fewer ranks",
                                      threads.size() + 1, world_.size(), error.what()))));
    }
    if (errors_[0] == nullptr) run_rank(0);
    for (std::thread& thread : threads) thread.join();
    if (world_.fault().raised()) throw_first();
    return result_;
  }

 private:
  void run_rank(int rank) noexcept {
    const LogRank log_rank(rank);
    try {
      const std::unique_ptr<Communicator> comm = make_thread_communicator(world_, rank);
      const int result = body_(*comm);
      if (rank == 0) result_ = result;
    } catch (...) {
      fail(rank, std::current_exception());
    }
  }

  void fail(int rank, std::exception_ptr error) noexcept {
    errors_[static_cast<size_t>(rank)] = error;
    std::string cause;
    try {
      cause = error_data(error).text;
    } catch (...) {
      cause.clear();  // no memory for the text
    }
    world_.abort(rank, cause);
  }

  [[noreturn]] void throw_first() const {
    const int first = world_.fault().rank();
    std::vector<RankEnd> ends(errors_.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      if (errors_[i] != nullptr) ends[i] = {true, error_data(errors_[i])};
    }
    RankEnd& end = ends[static_cast<size_t>(first)];
    if (end.failed && speaks_for_all(ends, first)) {
      std::rethrow_exception(errors_[static_cast<size_t>(first)]);
    }
    // The cause is the better text when the rank stalled, or ended well after it had aborted.
    if (!end.failed || end.error.code == ExitCode::peer) {
      end = {true, {ExitCode::peer, world_.fault().cause()}};
    }
    raise(run_error(ends, first));
  }

  ThreadWorld world_;
  const RankBody& body_;
  std::vector<std::exception_ptr> errors_;  // each written by its own thread
  int result_ = 0;
};

}  // namespace

int run_thread_ranks(const RankOptions& options, const RankBody& body) {
  return ThreadRanks(options, body).run();
}

}  // namespace weft
