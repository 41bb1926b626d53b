// The update of states that do not all live on the device, as a stream of pieces: load, update,
// store, with the loads running ahead. Internal to compile/.
#pragma once

#include "weft/compile/offload.h"

namespace weft {

void offload_updates(Graph& graph, const TierChoice& choice);

}  // namespace weft
