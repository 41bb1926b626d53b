// Learning-rate schedules. Steps are optimizer steps from 1; docs/configuration.md has the table.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/base/check.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

/// Fraction of the way from peak (1) to min_lr (0) at `progress` in [0, 1] of the decay.
double decay_factor(const std::string& name, double progress) {
  if (name == "constant") return 1.0;
  if (name == "linear" || name == "wsd") return 1.0 - progress;
  if (name == "cosine") return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  throw BugError("schedule", "unknown schedule " + name);
}

}  // namespace

double scaled_peak_lr(const Config& config) {
  const double lr = config.optimizer.lr;
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.lr_scaling == "none") return lr;
  const double ratio =
      static_cast<double>(config.train.global_batch) / static_cast<double>(schedule.base_batch);
  return schedule.lr_scaling == "sqrt" ? lr * std::sqrt(ratio) : lr * ratio;
}

double learning_rate(const Config& config, int64_t step) {
  const ScheduleConfig& schedule = config.schedule;
  const double peak = scaled_peak_lr(config);
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (schedule.name == "constant") return peak;
  const int64_t total = config.train.steps;
  int64_t decay_start = warmup;
  if (schedule.name == "wsd") {
    const int64_t length = schedule.decay_steps > 0 ? schedule.decay_steps : (total + 9) / 10;
    decay_start = std::max(warmup, total - length);
  }
  if (step <= decay_start) return peak;
  if (step >= total) return schedule.min_lr;
  const double progress = static_cast<double>(step - decay_start) /
                          static_cast<double>(std::max<int64_t>(1, total - decay_start));
  return schedule.min_lr + (peak - schedule.min_lr) * decay_factor(schedule.name, progress);
}

std::vector<double> update_hyper(const Config& config, int64_t updates_applied) {
  const auto t = static_cast<double>(updates_applied + 1);
  return {learning_rate(config, updates_applied + 1), 1.0 - std::pow(config.optimizer.beta1, t),
          1.0 - std::pow(config.optimizer.beta2, t)};
}

}  // namespace weft
