// The logical graphs of the programs: a whole training step (all micro-batches, verdict, update),
// an evaluation batch, a forward pass for generation.
#pragma once

#include <string>

#include "weft/config/config.h"
#include "weft/ir/graph.h"
#include "weft/model/model_spec.h"

namespace weft {

/// Element type of `precision.compute`.
DType compute_dtype(const Config& config);

/// Output of program "train" of a layer with experts: what router says (assignments per expert,
/// dropped ones, balance loss, z loss, tokens), summed over all sequences of the step; [E+4].
std::string router_stats_output(int64_t layer);

/// One step on logical shapes: micro-batches of micro_batch x parallel.data sequences x (forward,
/// backward), verdict, update.
Graph build_step_graph(const Config& config, const ModelSpec& spec, bool keep_gradients);
Graph build_eval_graph(const Config& config, const ModelSpec& spec);
Graph build_logits_graph(const Config& config, const ModelSpec& spec, int64_t seq_len,
                         bool all_positions);

}  // namespace weft
