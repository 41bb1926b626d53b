// Executes one bound program: every lane runs its steps in order, steps of different lanes are
// ordered by their waits. The compute lane runs on the calling thread, every other lane in use on
// a thread of the executor. Nothing allocates while a program runs. Internal to runtime/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "weft/backend/backend.h"
#include "weft/comm/communicator.h"
#include "weft/plan/plan.h"
#include "weft/runtime/session.h"
#include "weft/runtime/tier_memory.h"

namespace weft {

/// A step with its kernel and pointers; the spans point into the BoundProgram.
struct BoundStep {
  Kernel* kernel = nullptr;
  Transfer* transfer = nullptr;  // the kernel, when the step is one
  KernelArgs args;
  std::span<const int32_t> waits;
  int32_t index = 0;  // in PlanProgram::steps
  Lane lane = Lane::compute;
  bool is_update = false;  // verdict or update phase
  bool is_collective = false;
};

struct BoundProgram {
  const PlanProgram* program = nullptr;
  std::array<std::vector<BoundStep>, kNumLanes> lanes;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

class LaneExecutor {
 public:
  /// Starts a thread for each lane but the compute lane that some program of `plan` uses. An error
  /// of a run aborts `communicator` (null without collectives), so that no other rank waits for it.
  /// ResourceError when the system gives no thread.
  LaneExecutor(const Plan& plan, Communicator* communicator);
  ~LaneExecutor();
  LaneExecutor(const LaneExecutor&) = delete;
  LaneExecutor& operator=(const LaneExecutor&) = delete;

  /// Runs to the end. The first error of any lane stops all lanes and is rethrown here, of the
  /// same type, with program, step, operator, scope, micro-batch, lane and rank in its text.
  RunTimes run(const BoundProgram& program, std::vector<TraceEvent>* trace);

 private:
  struct LaneState {
    // Index of the last finished step, on a cache line of its own: written by one thread.
    alignas(64) std::atomic<int32_t> done{-1};
    double busy_ms = 0;
    double collective_ms = 0;  // part of busy_ms
    double update_ms = 0;
    std::array<double, kNumLanes> waited_ms{};  // for steps of each other lane
    std::thread thread;
  };

  void stop();
  void serve(Lane lane);
  void run_lane(Lane lane);
  /// A lane of the cold tier: begins the next transfers while earlier ones are under way.
  void run_cold_lane(Lane lane);
  bool is_ready(const BoundStep& step) const;
  void publish(LaneState& state, int32_t step);
  Lane lane_of(int32_t step) const;
  bool wait_for(int32_t step);
  RunTimes times() const;
  void fail(const BoundStep& step);

  const Plan& plan_;
  Communicator* const communicator_;
  std::array<LaneState, kNumLanes> lanes_;
  int num_threads_ = 0;

  // The current run; written before `generation_` is raised.
  const BoundProgram* program_ = nullptr;
  std::vector<TraceEvent>* trace_ = nullptr;
  double start_us_ = 0;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int32_t> working_{0};  // lane threads that have not finished the current run
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace weft
