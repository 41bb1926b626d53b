// Graph-to-graph passes of the pipeline. Each keeps the meaning of the program; the verifier runs
// after each.
#pragma once

#include <functional>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/kernel.h"
#include "weft/shard/entries.h"

namespace weft {

/// Folds `add` nodes into the addend inputs of the kernels that make one of their operands:
/// residuals, bias-free sums and gradient accumulation then cost no extra pass over memory.
void fuse_add(Graph& graph);

/// Replaces the chosen fused nodes by their unfused definition.
void expand_where(Graph& graph, const std::function<bool(const Node& node)>& chosen);
/// Does so with the nodes that `support` cannot run.
void expand_unsupported(Graph& graph, const KernelSupport& support);
/// And with those whose weight an entry cuts along a dim that the fused form needs whole, such as
/// the vocabulary of the loss.
void expand_cut(Graph& graph, const std::vector<ShardEntry>& entries, const Mesh& mesh);

/// Joins collectives of one kind, axis and type whose results nobody reads in between into calls of
/// up to `limit_bytes`: gradients, sums of squares, gathered weights. Decides by whole tensors, so
/// that all ranks of a group agree.
void bucket_collectives(Graph& graph, int64_t limit_bytes);

/// Lets collectives of activations start as soon as their operand is there, in the order they have,
/// so that they run beside whatever is computed before the result is read: tokens travel to their
/// experts while shared experts compute.
void start_collectives(Graph& graph);

/// Starts the gathers of cut weights (ZeRO 3) `ahead` gathers early, so that they run beside the
/// compute before them; their memory is charged for that time.
void prefetch_weights(Graph& graph, int32_t ahead);

/// Outputs of the training program "own.0", "own.1", …: sums of squares of vector gradients as this
/// rank made them, before they meet those of other ranks. What overflows in a layer passes through
/// its norms, so they tell which rank a step that was not applied owes it to.
inline constexpr const char* kOwnProbe = "own.";
void add_overflow_probes(Graph& graph);

/// Tells the updates of rounded moments which elements of the whole tensors this rank has
/// (attribute "elements", see ir/element_numbers.h).
void number_moments(Graph& graph);

/// Drops nodes that no output and no state result depends on.
void remove_dead_nodes(Graph& graph);

}  // namespace weft
