// From the logical graph and its sharding to the graph of one rank: local shapes and attributes,
// and collectives wherever a value is needed in another placement than it has.
#pragma once

#include "weft/ir/graph.h"
#include "weft/shard/propagate.h"

namespace weft {

/// The graph of `rank`. All ranks get the same nodes in the same order; shapes and attributes
/// differ, and ranks that do not pass an addend lack it and its moves. Moves come right before
/// their first reader; gradients that the verdict waits for and new values of states move as soon
/// as they exist, so that they overlap with what follows.
Graph localize(const Graph& graph, const Sharding& sharding, Router& router, int64_t rank);

}  // namespace weft
