// The loop of rope, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

struct RopeIsa {
  /// One position: `heads` heads of `head_dim`; halves (a, b) become (a cos - b sin, b cos + a sin)
  /// with sin negated for the inverse. `table` holds head_dim / 2 cosines, then sines. Index:
  /// float_index.
  void (*rotate[kFloats])(int64_t heads, int64_t head_dim, const void* x, const float* table,
                          bool inverse, void* y);
};

const RopeIsa& rope_isa();

}  // namespace weft::cpu
