// Runs this process as one rank, and ends all of them in the same way: every rank reports its end
// to rank 0, which judges and tells all. One rank prints the cause, all return one exit code.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "weft/base/check.h"
#include "weft/base/log.h"
#include "weft/base/raise.h"
#include "weft/comm/collective_call.h"
#include "weft/comm/comm_entries.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// After the first failure: how long rank 0 waits for the ends of the others, and they for its
// verdict. Who does not come by then is ended by MPI_Abort.
constexpr double kReportSeconds = 2.5;
constexpr double kVerdictSeconds = 3.5;
constexpr auto kPrintPause = std::chrono::milliseconds(300);
constexpr auto kPrinterPause = std::chrono::milliseconds(1500);
constexpr size_t kTextBytes = 2000;

enum Tag : int { kReport = 1, kVerdict = 2 };

/// How a rank ended, or how all shall end, as a message.
struct Ending {
  int32_t reported = 0;  // a report has come
  int32_t failed = 0;
  int32_t code = 0;
  int32_t printer = -1;  // verdict: who prints the text
  int32_t complete = 1;  // verdict: all ranks have ended
  char text[kTextBytes + 1] = "";

  void set_text(std::string_view value) {
    value = value.substr(0, kTextBytes);
    std::memcpy(text, value.data(), value.size());
    text[value.size()] = '\0';
  }
};

class Ends {
 public:
  explicit Ends(MpiWorld& world) : world_(world) {}

  /// How all end; `mine` is how this rank's body ended.
  Ending settle(const Ending& mine) {
    mine_ = mine;
    if (world_.rank() == 0) return judge();
    std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
    MPI_Irecv(&verdict_, sizeof verdict_, MPI_BYTE, 0, kVerdict, world_.endings(), &requests[0]);
    MPI_Isend(&mine_, sizeof mine_, MPI_BYTE, 0, kReport, world_.endings(), &requests[1]);
    if (all_done(requests, kVerdictSeconds)) return verdict_;
    // Rank 0 does not answer: the rank that has failed first, as far as it knows, says so.
    Ending verdict;
    verdict.complete = 0;
    verdict.failed = 1;
    verdict.code = static_cast<int32_t>(ExitCode::peer);
    if (world_.fault().rank() == world_.rank()) {
      verdict.printer = world_.rank();
      verdict.set_text(fmt::format("[comm] rank {}: {}{}", world_.rank(), mine.text,
                                   is_peer(mine.code) ? "; silent: rank 0" : ""));
    }
    return verdict;
  }

 private:
  Ending judge() {
    const auto ranks = static_cast<size_t>(world_.size());
    reports_.resize(ranks);
    reports_[0] = mine_;
    std::vector<MPI_Request> requests(ranks, MPI_REQUEST_NULL);
    for (size_t r = 1; r < ranks; ++r) {
      MPI_Irecv(&reports_[r], sizeof reports_[r], MPI_BYTE, static_cast<int>(r), kReport,
                world_.endings(), &requests[r]);
    }
    verdict_.complete = all_done(requests, kReportSeconds) ? 1 : 0;
    const int first = first_failure();
    if (first >= 0) {
      std::vector<RankEnd> ends(ranks);
      for (size_t r = 0; r < ranks; ++r) {
        ends[r].failed = reports_[r].reported != 0 && reports_[r].failed != 0;
        ends[r].error = {static_cast<ExitCode>(reports_[r].code), reports_[r].text};
      }
      RankEnd& end = ends[static_cast<size_t>(first)];
      // A rank that has failed but has not ended: its cause is known, and rank 0 prints it.
      if (!end.failed) end = {true, {ExitCode::peer, world_.fault().cause()}};
      const ErrorData error = run_error(ends, first);
      verdict_.failed = 1;
      verdict_.code = static_cast<int32_t>(error.code);
      verdict_.set_text(error.text + silent_ranks(first));
      verdict_.printer = reports_[static_cast<size_t>(first)].reported != 0 ? first : 0;
    }
    std::vector<MPI_Request> sends(ranks, MPI_REQUEST_NULL);
    for (size_t r = 1; r < ranks; ++r) {
      MPI_Isend(&verdict_, sizeof verdict_, MPI_BYTE, static_cast<int>(r), kVerdict,
                world_.endings(), &sends[r]);
    }
    const Clock::time_point start = Clock::now();
    Backoff backoff;
    int done = 0;
    while (done == 0 && Clock::now() - start < std::chrono::milliseconds(500)) {
      MPI_Testall(static_cast<int>(ranks), sends.data(), &done, MPI_STATUSES_IGNORE);
      backoff.pause();
    }
    return verdict_;
  }

  static bool is_peer(int32_t code) { return code == static_cast<int32_t>(ExitCode::peer); }

  /// A rank that waits in vain may wait for one that waits itself: who has not even reported an end
  /// is the culprit. "" when all have, or when the first failure has another cause.
  std::string silent_ranks(int first) const {
    const Ending& end = reports_[static_cast<size_t>(first)];
    if (verdict_.complete != 0 || end.reported == 0 || !is_peer(end.code)) return "";
    std::vector<int32_t> silent;
    for (size_t r = 0; r < reports_.size(); ++r) {
      if (reports_[r].reported == 0) silent.push_back(static_cast<int32_t>(r));
    }
    return silent.empty() ? "" : "; silent: " + ranks_text(silent);
  }

  /// The rank whose failure was the first: the one that brought the others down, but a failure of
  /// its own kind comes before "somebody does not answer". -1 = none.
  int first_failure() const {
    const int raised = world_.fault().rank();
    const auto own = [&](size_t r) {
      return reports_[r].reported != 0 && reports_[r].failed != 0 &&
             reports_[r].code != static_cast<int32_t>(ExitCode::peer);
    };
    if (raised >= 0 && own(static_cast<size_t>(raised))) return raised;
    for (size_t r = 0; r < reports_.size(); ++r) {
      if (own(r)) return static_cast<int>(r);
    }
    if (raised >= 0) return raised;
    for (size_t r = 0; r < reports_.size(); ++r) {
      if (reports_[r].failed != 0) return static_cast<int>(r);
    }
    return -1;
  }

  /// Waits for the requests; once a rank has failed, at most `seconds` more. Without a failure
  /// ranks may end as far apart as the stall limit says; rank 0 then tells who is missing.
  bool all_done(std::vector<MPI_Request>& requests, double seconds) {
    const Clock::time_point start = Clock::now();
    std::optional<Clock::time_point> failed;
    Backoff backoff;
    while (true) {
      int done = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) return true;
      const Clock::time_point now = Clock::now();
      const auto since = [&](Clock::time_point t) {
        return std::chrono::duration<double>(now - t).count();
      };
      if (!failed && world_.poll_fault()) failed = now;
      if (failed && since(*failed) > seconds) return false;
      const double limit = world_.stall_seconds();
      if (!failed && !reports_.empty() && limit > 0 && since(start) > limit) {
        std::vector<int32_t> missing;
        for (size_t r = 0; r < reports_.size(); ++r) {
          if (reports_[r].reported == 0) missing.push_back(static_cast<int32_t>(r));
        }
        world_.abort(stall_cause(missing, "the end of the run", limit));
      }
      backoff.pause();
    }
  }

  MpiWorld& world_;
  // Messages on their way: they live as long as this object.
  Ending mine_;
  Ending verdict_;
  std::vector<Ending> reports_;  // rank 0
};

/// MPI between its initialisation and its end.
class MpiSession {
 public:
  MpiSession() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    WEFT_CHECK(initialized == 0, "comm", "a process runs as a rank only once");
    // Where ranks share cores, Open MPI would give up the core at every look at a message: on a
    // busy machine each costs a turn of all others. Backoff decides that here.
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiSession() { MPI_Finalize(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// What makes this MPI unusable, as all ranks see it; code done = nothing.
  ErrorData refusal(const Launch& launch) const {
    if (rank_ != launch.rank || size_ != launch.world) {
      return {ExitCode::usage,
              fmt::format("[launch] got rank {} of {} from MPI and rank {} of {} from {}, expected "
                          "the same; try the launcher that belongs to the MPI library (with srun: "
                          "--mpi=pmix)",
                          rank_, size_, launch.rank, launch.world, launch.launcher)};
    }
    if (threads_ < MPI_THREAD_MULTIPLE) {
      return {ExitCode::resource,
              "[launch] got an MPI library for single threads, expected MPI_THREAD_MULTIPLE; try "
              "another MPI library"};
    }
    return {ExitCode::done, ""};
  }

 private:
  int threads_ = 0;
  int rank_ = 0;
  int size_ = 1;
};

Ending ending_of(const std::exception_ptr& error, const MpiWorld& world) {
  Ending ending;
  ending.reported = 1;
  const bool raised = world.fault().rank() == world.rank();
  if (error != nullptr) {
    const ErrorData data = error_data(error);
    ending.failed = 1;
    ending.code = static_cast<int32_t>(data.code);
    ending.set_text(raised && data.code == ExitCode::peer ? world.fault().cause() : data.text);
  } else if (raised) {
    ending.failed = 1;
    ending.code = static_cast<int32_t>(ExitCode::peer);
    ending.set_text(world.fault().cause());
  }
  return ending;
}

}  // namespace

int run_mpi_ranks(const RankOptions& options, const Launch& launch, const RankBody& body) {
  const MpiSession session;
  const ErrorData refusal = session.refusal(launch);
  if (refusal.code != ExitCode::done) {
    if (launch.rank == 0) log_line(LogLevel::error, refusal.text);
    return static_cast<int>(refusal.code);
  }
  MpiWorld world(options.stall_seconds);
  int result = 0;
  std::exception_ptr error;
  try {
    const LogRank log_rank(world.rank(), LogRank::Scope::process);
    if (options.world != launch.world) {
      throw UsageError("parallel",
                       fmt::format("got {} ranks from {}, expected the {} of the configuration "
                                   "(data x op x pipeline); try {} -n {}",
                                   launch.world, launch.launcher, options.world, launch.launcher,
                                   options.world));
    }
    const std::unique_ptr<Communicator> comm = make_mpi_communicator(world);
    result = body(*comm);
  } catch (...) {
    error = std::current_exception();
    world.abort(error_data(error).text);
  }
  Ends ends(world);
  const Ending verdict = ends.settle(ending_of(error, world));
  // Printed before any rank ends: a launcher ends all others when one ends with an error.
  if (verdict.printer == world.rank()) log_line(LogLevel::error, verdict.text);
  if (verdict.complete == 0) {
    // The launcher drops what it has not read when it kills: the printer gives it a moment, and the
    // others the printer.
    std::this_thread::sleep_for(verdict.printer == world.rank() ? kPrintPause : kPrinterPause);
    MPI_Abort(MPI_COMM_WORLD, verdict.code);
  }
  return verdict.failed != 0 ? verdict.code : result;
}

}  // namespace weft
