// Initial values of states: pure functions of (seed, logical tensor, element), so that every
// layout draws the same model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "weft/plan/plan.h"

namespace weft {

/// Runs body(begin, end) over pieces of [0, count) on the cores of the machine; rethrows an error
/// of any piece once all have ended.
void parallel_pieces(int64_t count, const std::function<void(int64_t, int64_t)>& body);

/// Writes elements [begin, begin + count) of the initial value of `state` to `out`, in the dtype
/// of the state. Not for states of kind copy.
void fill_state(const PlanState& state, uint64_t seed, int64_t begin, int64_t count,
                std::byte* out);

/// Index in the logical tensor of element `index` of the piece the state holds.
int64_t logical_index(const PlanState& state, int64_t index);

/// Do both states hold the same elements of one logical tensor, in the same order? Only then is a
/// copy made from the bytes of its source.
inline bool same_piece(const PlanState& a, const PlanState& b) {
  return a.type.shape == b.type.shape && a.logical == b.logical;
}
/// The state that draws what `source` starts with where `copy`, which holds another piece, needs
/// it: convert to the dtype of `copy` what fill_state gives for it.
PlanState drawn_for_copy(const PlanState& copy, const PlanState& source);

}  // namespace weft
