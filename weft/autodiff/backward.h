// Reverse-mode differentiation of a graph, on logical shapes and before any sharding: gradients of
// collectives therefore never exist as hand-made rules.
#pragma once

#include <map>
#include <span>

#include "weft/ir/graph.h"

namespace weft {

/// Appends the backward nodes of the scalar `loss` to `graph`, walking nodes [first, end) in
/// reverse. `cotangent` is d(objective)/d(loss), a scalar value. `initial` holds gradient sums of
/// `wanted` values that earlier micro-batches left; new contributions are added to them. Returns
/// the sum for every wanted value that the loss depends on. Sums are `add` nodes; the fuse_add pass
/// folds them into the kernels.
std::map<ValueId, ValueId> backward(Graph& graph, NodeId first, ValueId loss, ValueId cotangent,
                                    std::span<const ValueId> wanted,
                                    const std::map<ValueId, ValueId>& initial);

}  // namespace weft
