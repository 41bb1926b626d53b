// The arithmetic of reductions, the same for every communicator: contributions are combined in the
// order of the group's members, element by element, so that results do not depend on who computes
// them, nor on chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/dtype.h"
#include "weft/ir/placement.h"

namespace weft {

/// sum: f64, f32, bf16, f16, i64, i32; logsumexp: f64, f32.
bool can_combine(DType dtype, Reduction reduction);

/// out[i] = sources[0][i] + sources[1][i] + ... in this order, of `count` elements. bf16 and f16
/// are summed in f32 and rounded once; logsumexp is computed in f64 and rounded once, and takes
/// -inf as "nothing". `out` may be one of the sources, or overlap none.
void combine(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
             std::byte* out, int64_t count);

}  // namespace weft
