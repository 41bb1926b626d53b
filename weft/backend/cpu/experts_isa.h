// Row loops of dispatch and combine, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

/// Index: float_index of the rows.
struct ExpertsIsa {
  /// y = weight * x
  void (*scale[kFloats])(int64_t width, float weight, const void* x, void* y);
  /// y = sum of weights[j] * rows[j] over `count` rows (+ residual, which may be y).
  void (*add_up[kFloats])(int64_t width, int64_t count, const void* const* rows,
                          const float* weights, const void* residual, void* y);
  float (*dot[kFloats])(int64_t width, const void* a, const void* b);
};

const ExpertsIsa& experts_isa();

}  // namespace weft::cpu
