// Order of the micro-batches of a step: layer by layer instead of one after the other.
#pragma once

#include "weft/ir/graph.h"

namespace weft {

/// Reorders the forward and backward nodes so that all micro-batches pass a layer before the next
/// layer begins: each layer's weights are then needed once per pass instead of once per
/// micro-batch, for the price of keeping the activations of all micro-batches. Only the order
/// changes; sums over micro-batches keep theirs, so every bit stays. Depends on scopes, phases and
/// micro-batches alone, never on sizes: all ranks of a job get the same order.
void order_vertically(Graph& graph);

}  // namespace weft
