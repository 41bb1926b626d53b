// Graph-to-graph passes of the pipeline. Each keeps the meaning of the program; the verifier runs
// after each.
#pragma once

#include "weft/ir/graph.h"
#include "weft/ir/kernel.h"

namespace weft {

/// Folds `add` nodes into the addend inputs of the kernels that make one of their operands:
/// residuals, bias-free sums and gradient accumulation then cost no extra pass over memory.
void fuse_add(Graph& graph);

/// Replaces fused nodes that `support` cannot run by their unfused definition.
void expand_unsupported(Graph& graph, const KernelSupport& support);

/// Drops nodes that no output and no state result depends on.
void remove_dead_nodes(Graph& graph);

}  // namespace weft
