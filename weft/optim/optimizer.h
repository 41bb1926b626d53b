// The end of a training step as graph nodes: global gradient norm, verdict, one update per
// parameter. Optimizer slots are ordinary states, so sharding, tiers and checkpoints need to know
// nothing about the optimizer.
#pragma once

#include <vector>

#include "weft/config/config.h"
#include "weft/ir/graph.h"

namespace weft {

/// One parameter to update: the state that is changed (master or weight), its compute copy, if
/// any, and the sum of its gradients over the step.
struct UpdateTarget {
  std::string state;       // f32 (or f64) state that is updated
  std::string copy_state;  // state that receives the rounded copy; empty = none
  ValueId gradient = kNoValue;
};

/// Step inputs, see compile/pipeline.h.
struct UpdateInputs {
  ValueId inv_scale = kNoValue;
  ValueId hyper = kNoValue;
  ValueId step = kNoValue;  // only with bf16 moments
};

/// bf16 moments: the draws that round them need the number of the update, as input "update_step".
bool rounds_moments(const OptimizerConfig& config);

struct UpdateOutputs {
  ValueId norm = kNoValue;
  ValueId apply = kNoValue;
};

/// Output of the sum of squares of a parameter's gradient (over all ranks, still scaled): what is
/// not finite in a step that was not applied.
inline constexpr const char* kSumOutput = "sum.";

/// Appends norm, verdict and updates. Weight decay applies to states with `decay` only.
UpdateOutputs build_update(Graph& graph, const Config& config,
                           const std::vector<UpdateTarget>& targets, const UpdateInputs& inputs);

/// Learning rate of update `step` (from 1): warm-up lr * s / warmup, then the named schedule down
/// to min_lr at the last step, min_lr afterwards. `lr` already holds any batch scaling.
double learning_rate(const Config& config, int64_t step);
/// lr after `lr_scaling` ("linear": x global_batch / base_batch, "sqrt": its root).
double scaled_peak_lr(const Config& config);
/// hyper input of update t = updates applied so far + 1: {lr of t, 1 - beta1^t, 1 - beta2^t}. Steps
/// that were not applied count neither for the schedule nor for the corrections.
std::vector<double> update_hyper(const Config& config, int64_t updates_applied);

}  // namespace weft
