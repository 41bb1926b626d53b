// Row loops of the norms, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

/// Rows [begin, end) of `width` elements each. Pointers are to row 0.
struct NormArgs {
  int64_t begin = 0, end = 0, width = 0;
  float eps = 0;
  const void* x = nullptr;
  const float* w = nullptr;
  const float* b = nullptr;  // layernorm
  void* y = nullptr;
  float* mean = nullptr;  // layernorm
  float* rstd = nullptr;
  // gradients
  const void* dy = nullptr;
  const void* addend = nullptr;  // may be nullptr; added to dx
  void* dx = nullptr;
  float* dw = nullptr;  // [width] += sums over these rows
  float* db = nullptr;  // layernorm
};

/// Index: float_index of the operands.
struct NormIsa {
  void (*rmsnorm[kFloats])(const NormArgs&);
  void (*rmsnorm_grad[kFloats])(const NormArgs&);
  void (*layernorm[kFloats])(const NormArgs&);
  void (*layernorm_grad[kFloats])(const NormArgs&);
  /// to[j] += sum over rows [begin, end) of x[row][j], j in [0, width)
  void (*add_rows[kFloats])(int64_t begin, int64_t end, int64_t width, const void* x, float* to);
};

const NormIsa& norm_isa();

}  // namespace weft::cpu
