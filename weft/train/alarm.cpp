#include "weft/train/alarm.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/train/overflow.h"

namespace weft {

AlarmFinding AlarmRules::judge(const StepRecord& record, bool exhausted) {
  const bool bad = record.skipped || !std::isfinite(record.loss);
  if (!bad) {
    skips_ = 0;
    if (config_.grad_norm > 0 && record.grad_norm > config_.grad_norm) {
      return {StepVerdict::warn, "grad_norm",
              fmt::format("gradient norm {:.4g} at step {} is above alarm.grad_norm {:.4g}",
                          record.grad_norm, record.step, config_.grad_norm)};
    }
    return {};
  }
  ++skips_;
  std::string what =
      fmt::format("loss {} and gradient norm {} at step {}; the update was not applied",
                  record.loss, record.grad_norm, record.step);
  if (record.overflow) what += "; not finite " + overflow_text(*record.overflow);
  if (scaled_ && exhausted) {
    return {StepVerdict::stop, "min_scale",
            fmt::format("overflow at the least loss scale {:g} (precision.dynamic.min_scale): {}",
                        record.loss_scale, what)};
  }
  if (scaled_ && skips_ < config_.max_skips) {
    return {StepVerdict::note, "overflow",
            fmt::format("overflow with loss scale {:g}: {}", record.loss_scale, what)};
  }
  if (!scaled_ && config_.nonfinite == "stop") return {StepVerdict::stop, "nonfinite", what};
  if (skips_ >= config_.max_skips) {
    return {StepVerdict::stop, "max_skips",
            fmt::format("{} skipped steps in a row (alarm.max_skips): {}", skips_, what)};
  }
  return {StepVerdict::warn, "nonfinite", what};
}

void run_alarm_command(const std::string& command, const Json& document) {
  if (command.empty()) return;
  // A command that does not read its input must not end the run.
  struct sigaction ignore = {};
  struct sigaction old = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old);
  FILE* pipe = popen(command.c_str(), "w");
  if (pipe == nullptr) {
    log_warning("alarm.command could not be started: {}", command);
  } else {
    const std::string text = document.dump() + "\n";
    std::fwrite(text.data(), 1, text.size(), pipe);
    const int status = pclose(pipe);
    if (status != 0) log_warning("alarm.command ended with status {}: {}", status, command);
  }
  sigaction(SIGPIPE, &old, nullptr);
}

StallWatch::StallWatch(double stall_seconds, std::string command)
    : stall_seconds_(stall_seconds), command_(std::move(command)) {
  if (stall_seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::beat(int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    step_ = step;
    ++beats_;
  }
  wake_.notify_all();
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const int64_t seen = beats_;
    const auto moved = [&] { return stopping_ || beats_ != seen; };
    if (wake_.wait_for(lock, std::chrono::duration<double>(stall_seconds_), moved)) continue;
    const int64_t step = step_;
    lock.unlock();
    log_error("step {} has not ended after {:.0f} s (alarm.stall_seconds)", step, stall_seconds_);
    run_alarm_command(command_,
                      Json::object({{"type", "alarm"}, {"kind", "stall"}, {"step", step}}));
    lock.lock();
    wake_.wait(lock, moved);
  }
}

}  // namespace weft
