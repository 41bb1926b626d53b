// Loops of the optimizer updates and of sums, as function pointers for the CPU this process runs
// on. The arithmetic is that of update_math.h, element by element, so every CPU gives the same
// bits.
#pragma once

#include <cstdint>

#include "weft/backend/cpu/float_table.h"
#include "weft/backend/update_math.h"

namespace weft::cpu {

/// Pointers to the elements of one piece; outputs may be the memory of the inputs.
struct UpdateArgs {
  int64_t count = 0;
  const float* w = nullptr;
  const void* m = nullptr;  // f32, or bf16 in the rounded loops; sgd: the momentum buffer
  const void* v = nullptr;
  const float* g = nullptr;
  float* new_w = nullptr;
  void* new_m = nullptr;
  void* new_v = nullptr;
  const uint32_t* words = nullptr;  // of the elements, in the rounded loops
  void* copy = nullptr;             // see the index
};

struct UpdateIsa {
  using AdamW = void (*)(const AdamwScalars<float>& scalars, const UpdateArgs& args);
  using Sgd = void (*)(const SgdScalars<float>& scalars, const UpdateArgs& args);
  // Index: moments are bf16, rounded stochastically; then 0 no copy, else float_index of the copy.
  AdamW adamw[2][kFloats];
  Sgd sgd[kFloats];
  Sgd sgd_momentum[2][kFloats];
  /// element_word of elements number, number + 1, … under `key`.
  void (*words)(uint64_t key, int64_t number, int64_t count, uint32_t* to);
  /// Sum of squares in double, in a fixed order. Index: float_index.
  double (*sum_squares[kFloats])(int64_t count, const void* x);
};

const UpdateIsa& update_isa();

}  // namespace weft::cpu
