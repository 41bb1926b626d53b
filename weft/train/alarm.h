// Alarms: what is wrong with a step, who is told, and when the run stops.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "weft/config/config.h"
#include "weft/train/metrics.h"

namespace weft {

enum class StepVerdict {
  good,
  note,  // written down: part of how a loss scale works
  warn,  // told, training goes on
  stop,  // the run must end with an alarm
};

struct AlarmFinding {
  StepVerdict verdict = StepVerdict::good;
  std::string kind;     // "overflow", "nonfinite", "max_skips", "min_scale", "grad_norm", "stall"
  std::string message;  // one line for people
};

/// Judges steps in order. Non-finite losses and skipped steps follow `alarm.nonfinite`: stop at
/// once, or skip and stop after `max_skips` in a row. In half precision (`scaled`) they are
/// overflows, which skip the step, stop after `max_skips` in a row or once the loss scale cannot
/// become smaller. A gradient norm above `alarm.grad_norm` is told but does not stop the run.
class AlarmRules {
 public:
  AlarmRules(const AlarmConfig& config, bool scaled) : config_(config), scaled_(scaled) {}

  /// `exhausted`: the loss scale is at its floor.
  AlarmFinding judge(const StepRecord& record, bool exhausted);
  int64_t consecutive_skips() const { return skips_; }

 private:
  AlarmConfig config_;
  bool scaled_;
  int64_t skips_ = 0;
};

/// Runs `command` through the shell with `document` on its standard input and waits for it. A
/// failure of the command is logged, never thrown.
void run_alarm_command(const std::string& command, const Json& document);

/// Tells (log and alarm command) when no heartbeat came for `stall_seconds`; once per stall. Own
/// thread for its lifetime.
class StallWatch {
 public:
  StallWatch(double stall_seconds, std::string command);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// Training is alive and about to work on `step`.
  void beat(int64_t step);

 private:
  void watch();

  const double stall_seconds_;
  const std::string command_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int64_t step_ = 0;
  int64_t beats_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weft
