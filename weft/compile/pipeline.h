// From a configuration to a Plan: the ordered list of passes. THE page to read first is
// pipeline.cpp. Pure functions of their arguments; no device, no data, no weights are touched.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/config/config.h"
#include "weft/ir/kernel.h"
#include "weft/model/model_spec.h"
#include "weft/plan/plan.h"

namespace weft {

struct CompileOptions {
  int rank = 0;  // world rank that the plan is for
  /// Consecutive ranks that share a node; 0 = all of them. Only for reports and warnings.
  int64_t ranks_per_node = 0;
  bool train = true;  // program "train"
  bool eval = false;  // program "eval": inputs as one micro-batch, output "loss"
  /// > 0: program "logits": one sequence of that many tokens, logits of position `last`.
  int64_t logits_seq_len = 0;
  /// Program "logits" gives all positions (tests and goldens): output [1,S,V] instead of [1,1,V].
  bool all_logits = false;
  /// Makes every weight gradient an output of "train", named "<parameter>@grad" (tests).
  bool keep_gradients = false;
  /// Called after each stage (model, grad, step, fuse, plan) with its text form.
  std::function<void(std::string_view stage, const std::string& text)> dump;
};

/// Inputs of program "train", for micro-batch i of one rank: "tokens.i", "labels.i",
/// "positions.i" [B,S] i32; "segments.i" [B,S] i32 when documents are kept apart; "samples.i" [B]
/// i64 when dropout > 0. Once per step: "step" [1] i64 (with dropout), "grad_scale" [1] (loss scale
/// / valid labels of the global batch), "inv_scale" [1], "hyper" [3] (lr, 1 - beta1^t, 1 -
/// beta2^t). Outputs: "loss.i" [1] sum of token losses, "norm" [1], "apply" [1] i32.
/// With a late update (compile/late_update.h) "hyper" of "train" belongs to the waiting update, and
/// program "flush" with input "hyper" runs it alone; program "prime", where there is one, runs
/// before the first step and after "flush" or new values of states. Program
/// "eval": "tokens", "labels", "positions", "segments"; output "loss". Program "logits": "tokens",
/// "positions" [1,S], "last" [1] i32; output "logits". Scalars have the parameter dtype (f32; f64
/// when compute is fp64).
Plan compile(const Config& config, const ModelSpec& spec, const KernelSupport& support,
             const CompileOptions& options);

/// The plans of all ranks of the configuration: ranks with the same shapes share one (options.rank
/// is not read). 512 ranks take a few times as long as one.
ClusterPlan compile_ranks(const Config& config, const ModelSpec& spec, const KernelSupport& support,
                          const CompileOptions& options);

}  // namespace weft
