#include "weft/runtime/lanes.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "weft/base/check.h"
#include "weft/base/raise.h"

namespace weft {
namespace {

/// `done` of a lane whose waiters must wake up because the run failed.
constexpr int32_t kReleased = INT32_MAX;
/// Transfers of a cold lane that are under way at once: the disk's queue never runs dry.
constexpr size_t kTransfersUnderWay = 3;
/// Tries before a waiting lane goes to sleep.
constexpr int kSpins = 200;

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

size_t at(Lane lane) { return static_cast<size_t>(lane); }

/// Throws the current exception again with `context` in front, keeping its type.
[[noreturn]] void rethrow_with(const std::string& context) {
  try {
    throw;
  } catch (const Error& error) {
    raise(error.code(), context, error.what());
  } catch (const std::bad_alloc&) {
    throw ResourceError(context, "the system has no memory left");
  } catch (const std::exception& error) {
    throw BugError(context, error.what());
  } catch (...) {
    throw BugError(context, "got an exception of an unknown type");
  }
}

}  // namespace

LaneExecutor::LaneExecutor(const Plan& plan, Communicator* communicator)
    : plan_(plan), communicator_(communicator) {
  std::array<bool, kNumLanes> used{};
  for (const PlanProgram& program : plan.programs) {
    for (const PlanStep& step : program.steps) used[at(step.lane)] = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const auto lane = static_cast<Lane>(i);
    if (lane == Lane::compute || !used[i]) continue;
    try {
      lanes_[i].thread = std::thread([this, lane] { serve(lane); });
    } catch (const std::system_error& error) {
      stop();
      throw ResourceError("session", fmt::format("got {} threads for lanes, then: {}; try fewer "
                                                 "ranks or a larger limit of memory or processes",
                                                 num_threads_, error.what()));
    }
    ++num_threads_;
  }
}

LaneExecutor::~LaneExecutor() { stop(); }

void LaneExecutor::stop() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (LaneState& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
}

RunTimes LaneExecutor::run(const BoundProgram& program, std::vector<TraceEvent>* trace) {
  program_ = &program;
  trace_ = trace;
  failed_.store(false);
  error_ = nullptr;
  for (LaneState& lane : lanes_) lane.done.store(-1, std::memory_order_relaxed);
  const double start = now_us();
  start_us_ = start;
  working_.store(num_threads_);
  generation_.fetch_add(1);
  generation_.notify_all();

  run_lane(Lane::compute);
  for (int32_t left = working_.load(); left != 0; left = working_.load()) working_.wait(left);
  if (error_) std::rethrow_exception(error_);

  RunTimes result = times();
  result.total_ms = (now_us() - start) * 1e-3;
  return result;
}

RunTimes LaneExecutor::times() const {
  const LaneState& compute = lanes_[at(Lane::compute)];
  RunTimes times;
  times.compute_ms = compute.busy_ms - compute.collective_ms;
  // A collective on the compute lane itself is exposed as a whole.
  times.comm_exposed_ms = compute.collective_ms + compute.waited_ms[at(Lane::comm)];
  for (const Lane lane : {Lane::h2d, Lane::d2h, Lane::host}) {
    times.copy_exposed_ms += compute.waited_ms[at(lane)];
  }
  for (const Lane lane : {Lane::nvme_read, Lane::nvme_write}) {
    times.io_exposed_ms += compute.waited_ms[at(lane)];
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    times.update_ms += lanes_[i].update_ms;
    times.comm_ms += i == at(Lane::comm) ? lanes_[i].busy_ms : lanes_[i].collective_ms;
  }
  return times;
}

void LaneExecutor::serve(Lane lane) {
  uint32_t seen = 0;
  while (true) {
    generation_.wait(seen);
    seen = generation_.load();
    if (stopping_.load()) return;
    if (lane == Lane::nvme_read || lane == Lane::nvme_write) {
      run_cold_lane(lane);
    } else {
      run_lane(lane);
    }
    if (working_.fetch_sub(1) == 1) working_.notify_all();
  }
}

void LaneExecutor::run_lane(Lane lane) {
  LaneState& state = lanes_[at(lane)];
  const bool alone = num_threads_ == 0;
  double busy_us = 0;
  double collective_us = 0;
  double update_us = 0;
  state.waited_ms.fill(0);
  double previous_end = now_us();
  for (const BoundStep& step : program_->lanes[at(lane)]) {
    double begin = previous_end;
    if (!step.waits.empty()) {
      bool ready = true;
      for (int32_t wait : step.waits) {
        ready = ready && wait_for(wait);
        const double until = now_us();
        state.waited_ms[at(lane_of(wait))] += (until - begin) * 1e-3;
        begin = until;
      }
      if (!ready) break;
    }
    if (!alone && failed_.load(std::memory_order_relaxed)) break;
    try {
      step.kernel->run(step.args);
    } catch (...) {
      fail(step);
      break;
    }
    const double end = now_us();
    previous_end = end;
    busy_us += end - begin;
    if (step.is_collective) collective_us += end - begin;
    if (step.is_update) update_us += end - begin;
    if (trace_ != nullptr) {
      (*trace_)[static_cast<size_t>(step.index)] = {step.index, lane, begin - start_us_,
                                                    end - start_us_};
    }
    if (!alone) publish(state, step.index);
  }
  state.busy_ms = busy_us * 1e-3;
  state.collective_ms = collective_us * 1e-3;
  state.update_ms = update_us * 1e-3;
}

/// Tells waiters that a step has finished. A released lane stays released.
void LaneExecutor::publish(LaneState& state, int32_t step) {
  int32_t before = state.done.load(std::memory_order_relaxed);
  if (before != kReleased) {
    state.done.compare_exchange_strong(before, step, std::memory_order_release,
                                       std::memory_order_relaxed);
  }
  state.done.notify_all();
}

bool LaneExecutor::is_ready(const BoundStep& step) const {
  return std::all_of(step.waits.begin(), step.waits.end(), [&](int32_t wait) {
    return lanes_[at(lane_of(wait))].done.load(std::memory_order_acquire) >= wait;
  });
}

void LaneExecutor::run_cold_lane(Lane lane) {
  LaneState& state = lanes_[at(lane)];
  state.busy_ms = state.collective_ms = state.update_ms = 0;
  state.waited_ms.fill(0);
  struct Under {
    const BoundStep* step;
    double begin;
  };
  std::array<Under, kTransfersUnderWay> under{};
  size_t first = 0;
  size_t count = 0;
  const BoundStep* current = nullptr;
  double busy_since = 0;
  double last_end = 0;
  const auto finish_oldest = [&] {
    const Under oldest = under[first];
    first = (first + 1) % under.size();
    --count;
    current = oldest.step;
    oldest.step->transfer->finish();
    const double end = now_us();
    if (count == 0) state.busy_ms += (end - busy_since) * 1e-3;
    if (trace_ != nullptr) {
      // Transfers under way together share the lane: each gets the time in which it was the oldest.
      const double begin = std::max(oldest.begin, last_end);
      (*trace_)[static_cast<size_t>(oldest.step->index)] = {oldest.step->index, lane,
                                                            begin - start_us_, end - start_us_};
    }
    last_end = end;
    publish(state, oldest.step->index);
  };
  try {
    for (const BoundStep& step : program_->lanes[at(lane)]) {
      // What others wait for is not held back for a transfer that cannot begin yet.
      while (count > 0 && (count == under.size() || !is_ready(step))) finish_oldest();
      const double asked = now_us();
      bool ready = true;
      for (const int32_t wait : step.waits) ready = ready && wait_for(wait);
      if (!ready || failed_.load(std::memory_order_relaxed)) break;
      const double begin = now_us();
      if (!step.waits.empty())
        state.waited_ms[at(lane_of(step.waits[0]))] += (begin - asked) * 1e-3;
      current = &step;
      step.transfer->begin();
      if (count == 0) busy_since = begin;
      under[(first + count) % under.size()] = {&step, begin};
      ++count;
    }
    while (count > 0) finish_oldest();
  } catch (...) {
    fail(*current);
    // The others must not write into memory that is about to be used for something else.
    while (count > 0) {
      try {
        finish_oldest();
      } catch (...) {
        // The first error is the one that is reported.
      }
    }
  }
}

Lane LaneExecutor::lane_of(int32_t step) const {
  return program_->program->steps[static_cast<size_t>(step)].lane;
}

/// Waits until `step` has finished; false when the run has failed.
bool LaneExecutor::wait_for(int32_t step) {
  std::atomic<int32_t>& done = lanes_[at(lane_of(step))].done;
  int32_t now = done.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && now < step; ++i) now = done.load(std::memory_order_acquire);
  while (now < step) {
    done.wait(now, std::memory_order_acquire);
    now = done.load(std::memory_order_acquire);
  }
  return now != kReleased;
}

/// Records the current exception as that of the run, if it is the first, and wakes every waiter.
void LaneExecutor::fail(const BoundStep& bound) {
  const PlanProgram& program = *program_->program;
  const PlanStep& step = program.steps[static_cast<size_t>(bound.index)];
  const std::string context = fmt::format(
      "{} step {}, operator {}, scope {}, micro-batch {}, lane {}, rank {}", program.name,
      bound.index, op_def(step.op).name, step.scope.empty() ? "-" : step.scope, step.micro,
      lane_name(bound.lane), plan_.rank);
  std::exception_ptr wrapped;
  std::string cause;
  try {
    rethrow_with(context);
  } catch (const Error& error) {
    wrapped = std::current_exception();
    cause = error.what();
  }
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = wrapped;
  }
  failed_.store(true);
  // Lanes that wait inside a collective, here or on other ranks, wake up with this cause.
  if (communicator_ != nullptr) communicator_->abort(cause);
  for (LaneState& lane : lanes_) {
    lane.done.store(kReleased, std::memory_order_release);
    lane.done.notify_all();
  }
}

}  // namespace weft
