// Late update: the update of a step runs at the begin of the next one, each weight just before its
// first reader, so that the traffic of states hides behind the forward pass. Exact: the same
// operations on the same values; gradients and the verdict wait in states of their own.
#pragma once

#include "weft/ir/graph.h"

namespace weft {

/// Suffix of the states that wait for the update; they are no part of a checkpoint.
inline constexpr const char* kPendingSuffix = "@pending";
/// The verdict among them: 0 until a step has run, and after "flush" once the caller says so.
inline constexpr const char* kPendingApply = "apply@pending";

/// Turns the training step of one rank into: update with what waits, forward, backward, verdict;
/// what the next update needs waits. Input "hyper" becomes that of the waiting update. Returns the
/// program "flush": the waiting update alone, for evaluation, checkpoints and the end of a run.
Graph delay_updates(Graph& train);

}  // namespace weft
