// Loops over contiguous elements, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

using Unary = void (*)(int64_t, const void*, void*);
using Binary = void (*)(int64_t, const void*, const void*, void*);
using GluGrad = void (*)(int64_t, const void*, const void*, const void*, void*, void*);
using DropoutRow = void (*)(int64_t, const void*, const void*, uint64_t, uint64_t, uint32_t,
                            int64_t, uint32_t, float, void*);

/// Functions by kind (0 gelu, 1 gelu_tanh, 2 silu) and by float_index of the operands.
struct ElementwiseIsa {
  Binary add[kFloats];
  Unary convert[kFloats][kFloats];  // [from][to]
  Unary activation[3][kFloats];
  Binary activation_grad[3][kFloats];
  Binary glu[3][kFloats];
  GluGrad glu_grad[3][kFloats];
  DropoutRow dropout_row[kFloats];
};

const ElementwiseIsa& elementwise_isa();

}  // namespace weft::cpu
