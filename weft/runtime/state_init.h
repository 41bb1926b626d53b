// Initial values of states: pure functions of (seed, logical tensor, element), so that every
// layout draws the same model. Internal to runtime/.
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

}  // namespace weft
