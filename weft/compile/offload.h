// Puts states, gradients and activations into the tiers that were chosen for them: the graph of one
// rank gets loads and stores, updates work piece by piece. Nothing is computed otherwise than
// before, so every bit stays.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "weft/ir/graph.h"

namespace weft {

/// Between the name of a state and the first element of a piece of it that lies ready for the next
/// run (TierChoice::ahead_bytes); such states are no part of a checkpoint.
inline constexpr const char* kAheadMark = "@ahead.";

struct TierChoice {
  std::map<std::string, Tier> homes;        // state -> home; device when absent
  std::map<std::string, Tier> gradients;    // parameter -> where its gradient sum waits
  std::map<std::string, Tier> activations;  // value name -> where it waits for the backward pass
  bool late_update = false;                 // compile/late_update.h
  bool vertical = false;                    // one load serves all micro-batches of a pass
  bool update_on_host = false;              // of states that are not all on the device
  /// Of one tensor of an update piece; a multiple of 8192 with states in the cold tier.
  int64_t chunk_bytes = int64_t{16} << 20;
  /// Most bytes of the first pieces of a late update that the step before reads ahead and leaves
  /// where updates work.
  int64_t ahead_bytes = 0;
  int32_t pieces_ahead = 2;  // update pieces that are loaded before their turn
  int32_t loads_ahead = 2;   // weights and activations loaded before their turn

  bool empty() const {
    return homes.empty() && gradients.empty() && activations.empty() && !late_update;
  }
};

/// Rewrites `graph`. Names that the graph does not have are ignored: other programs have them.
void offload(Graph& graph, const TierChoice& choice);

}  // namespace weft
