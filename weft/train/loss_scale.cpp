#include "weft/train/loss_scale.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

/// Scaled losses and the inverse stay normal floats; no model gets near it.
constexpr double kMaxScale = 0x1p64;

}  // namespace

LossScale::LossScale(const PrecisionConfig& config)
    : config_(config.dynamic),
      dynamic_(config.compute == "fp16" && !config.loss_scale.has_value()),
      value_(config.loss_scale.value_or(1.0)) {
  if (!dynamic_) return;
  value_ = config_.initial;
  hysteresis_left_ = config_.hysteresis;
}

void LossScale::update(bool overflow) {
  if (!dynamic_) return;
  if (!overflow) {
    exhausted_ = false;
    if (++good_steps_ < config_.growth_interval) return;
    good_steps_ = 0;
    hysteresis_left_ = config_.hysteresis;
    value_ = std::min(value_ * config_.growth_factor, std::max(kMaxScale, value_));
    return;
  }
  good_steps_ = 0;
  hysteresis_left_ = std::max<int64_t>(hysteresis_left_ - 1, 0);
  if (hysteresis_left_ > 0) return;
  exhausted_ = value_ <= config_.min_scale;
  value_ = std::min(value_, std::max(value_ * config_.backoff_factor, config_.min_scale));
}

Json LossScale::state() const {
  if (!dynamic_) return nullptr;
  return Json::object(
      {{"scale", value_}, {"good_steps", good_steps_}, {"hysteresis_left", hysteresis_left_}});
}

void LossScale::restore(const Json& state) {
  if (!dynamic_ || state.is_null()) return;
  const Json* scale = state.find("scale");
  const Json* good = state.find("good_steps");
  const Json* left = state.find("hysteresis_left");
  const auto counts = [](const Json* json) {
    return json != nullptr && json->is_int() && json->as_int() >= 0;
  };
  const bool normal = scale != nullptr && scale->is_number() && scale->as_double() >= 0x1p-126 &&
                      scale->as_double() <= 0x1p127;
  if (!normal || !counts(good) || !counts(left)) {
    throw InputError("checkpoint",
                     fmt::format("got the loss scaler {}, expected \"scale\", a normal float, and "
                                 "the counters \"good_steps\" and \"hysteresis_left\"; try "
                                 "precision.dynamic.reset = true",
                                 state.dump()));
  }
  value_ = scale->as_double();
  good_steps_ = good->as_int();
  hysteresis_left_ = left->as_int();
}

}  // namespace weft
