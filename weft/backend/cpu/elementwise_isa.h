// Loops over contiguous elements, as function pointers for the CPU this process runs on.
#pragma once

#include <cstdint>

namespace weft::cpu {

using Unary = void (*)(int64_t, const void*, void*);
using Binary = void (*)(int64_t, const void*, const void*, void*);
using GluGrad = void (*)(int64_t, const void*, const void*, const void*, void*, void*);
using DropoutRow = void (*)(int64_t, const void*, const void*, uint64_t, uint64_t, uint32_t,
                            int64_t, uint32_t, float, void*);

/// Functions by kind (0 gelu, 1 gelu_tanh, 2 silu) and by bf16.
struct ElementwiseIsa {
  Binary add[2];
  Unary convert[2][2];  // [from bf16][to bf16]
  Unary activation[3][2];
  Binary activation_grad[3][2];
  Binary glu[3][2];
  GluGrad glu_grad[3][2];
  DropoutRow dropout_row[2];
};

const ElementwiseIsa& elementwise_isa();

}  // namespace weft::cpu
