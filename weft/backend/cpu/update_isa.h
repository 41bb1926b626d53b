// Loops of the optimizer updates and of sums, as function pointers for the CPU this process runs
// on. The arithmetic is that of update_math.h, element by element, so every CPU gives the same
// bits.
#pragma once

#include <cstdint>

#include "weft/backend/update_math.h"
#include "weft/base/dtype.h"

namespace weft::cpu {

/// Pointers to the elements of one piece; outputs may be the memory of the inputs.
struct UpdateArgs {
  int64_t count = 0;
  const float* w = nullptr;
  const float* m = nullptr;  // sgd: the momentum buffer
  const float* v = nullptr;
  const float* g = nullptr;
  float* new_w = nullptr;
  float* new_m = nullptr;
  float* new_v = nullptr;
  void* copy = nullptr;  // f32 or bf16, see the index
};

struct UpdateIsa {
  // Index: 0 no copy, 1 bf16 copy.
  void (*adamw[2])(const AdamwScalars<float>& scalars, const UpdateArgs& args);
  void (*sgd[2])(const SgdScalars<float>& scalars, const UpdateArgs& args);
  void (*sgd_momentum[2])(const SgdScalars<float>& scalars, const UpdateArgs& args);
  /// Sum of squares in double, in a fixed order. Index: bf16.
  double (*sum_squares[2])(int64_t count, const void* x);
};

const UpdateIsa& update_isa();

}  // namespace weft::cpu
