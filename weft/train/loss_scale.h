// The loss scale of half precision: what the loss is multiplied with so that small gradients do
// not vanish, and how it reacts when large ones overflow. docs/precision.md has the rule as a
// table. A pure state machine: every rank has one and feeds it the same verdicts.
#pragma once

#include "weft/base/json.h"
#include "weft/config/config.h"

namespace weft {

class LossScale {
 public:
  /// Dynamic for fp16 without a given scale; else fixed at `loss_scale`, or 1.
  explicit LossScale(const PrecisionConfig& config);

  /// The scale of the next step: a normal float, never 0.
  double value() const { return value_; }
  bool dynamic() const { return dynamic_; }

  /// A step ended. Good: after growth_interval good steps in a row the scale grows and the
  /// hysteresis is whole again. Overflow: it costs one of the hysteresis; when none is left the
  /// scale shrinks, down to min_scale.
  void update(bool overflow);
  /// The last overflow should have made the scale smaller and could not: nothing will change any
  /// more by going on.
  bool exhausted() const { return exhausted_; }

  /// {"scale","good_steps","hysteresis_left"}; null for a fixed scale.
  Json state() const;
  /// Takes over a saved state; InputError when it is none of a scaler. A fixed scale ignores it, a
  /// null one leaves the initial state.
  void restore(const Json& state);

 private:
  DynamicScaleConfig config_;
  bool dynamic_ = false;
  double value_ = 1.0;
  int64_t good_steps_ = 0;  // in a row, since the last growth or overflow
  int64_t hysteresis_left_ = 0;
  bool exhausted_ = false;
};

}  // namespace weft
