// The update of states that do not all live on the device, as a stream of pieces: load, update,
// store, with the loads running ahead. Internal to compile/.
#pragma once

#include <optional>

#include "weft/compile/offload.h"

namespace weft {

void offload_updates(Graph& graph, const TierChoice& choice);

/// `train`: a step whose first update pieces lie ready in states that the run before has filled
/// (TierChoice::ahead_bytes). Returns the program "prime", which fills them before the first run
/// and after anything else has changed the states they are pieces of; nothing when there are none.
std::optional<Graph> prime_ahead(const Graph& train);

}  // namespace weft
