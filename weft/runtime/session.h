// A Session runs the programs of one Plan on one backend: it owns the arenas, binds every kernel
// once and then executes lanes. Use from one thread; lanes run on threads of the session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "weft/backend/backend.h"
#include "weft/comm/communicator.h"
#include "weft/io/cold/cold_options.h"
#include "weft/plan/plan.h"

namespace weft {

/// Time one run of a program spent, in milliseconds, by lane and for the update phase.
struct RunTimes {
  double total_ms = 0;
  double compute_ms = 0;
  double update_ms = 0;
  double comm_ms = 0;          // collectives, hidden or not
  double comm_exposed_ms = 0;  // time the compute lane waited for them
  double copy_exposed_ms = 0;  // the same for copies between device and host and for the host lane
  double io_exposed_ms = 0;    // and for the cold tier
};

/// Bytes that crossed to and from the cold tier.
struct TierTraffic {
  int64_t nvme_read = 0;
  int64_t nvme_write = 0;
};

/// One executed step, for timelines.
struct TraceEvent {
  int32_t step = 0;
  Lane lane = Lane::compute;
  double begin_us = 0;  // since the start of the program
  double end_us = 0;
};

class Session {
 public:
  /// Allocates the arenas of `plan` and prepares all kernels. `plan` must outlive the session, and
  /// so must `communicator`, which a plan with collectives needs. `cold`: folders of the nvme tier.
  /// Throws ResourceError when memory is not there.
  Session(const Plan& plan, Backend& backend, Communicator* communicator = nullptr,
          const ColdOptions* cold = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const { return plan_; }

  /// Writes a named input of a program. The size must match exactly. Inputs keep their place in
  /// the arena only during the run: write all inputs of a program, then run it.
  void set_input(std::string_view program, std::string_view input, const void* data, int64_t bytes);
  /// Reads a named output after a run of that program and before any other run.
  void get_output(std::string_view program, std::string_view output, void* data, int64_t bytes);
  bool has_input(std::string_view program, std::string_view input) const;
  bool has_output(std::string_view program, std::string_view output) const;

  /// Copies a state out of or into its home, in the state's own dtype. `index` is the position in
  /// plan().states.
  void read_state(int index, void* data);
  void write_state(int index, const void* data);
  /// Fills every state by its StateInit under `seed` (states of kind copy last).
  void init_states(uint64_t seed);
  /// Recomputes the states of kind copy from sources that hold the same piece (after a load, which
  /// itself fills the other copies).
  void refresh_copies();

  /// Runs a program to its end. An error in a lane is rethrown here with step, operator and rank.
  RunTimes run(std::string_view program);
  /// The next run records its steps.
  void record_trace(std::vector<TraceEvent>* events);

  /// Bytes in use per tier; equal to the plan's peaks.
  int64_t used_bytes(Tier tier) const;
  /// Bytes moved to and from the cold tier since the start.
  TierTraffic tier_traffic() const;

 private:
  struct Impl;
  const Plan& plan_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
