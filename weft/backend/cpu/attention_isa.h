// The block loops of attention, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

struct AttentionShape {
  int64_t positions = 0;     // S
  int64_t num_heads = 0;     // N
  int64_t num_kv_heads = 0;  // G
  int64_t head_dim = 0;      // D
  int64_t window = 0;        // 0 = none
  float scale = 1;
};

/// Operands of one sequence: q, o, dq, d_o are [S, N * D]; k, v, dk, dv are [S, G * D]; lse is
/// [N, S]; segments is [S] or nullptr.
struct AttentionArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const int32_t* segments = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  const void* d_o = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

struct AttentionIsa {
  int64_t query_block;  // queries per block
  /// Floats of scratch that one worker needs.
  int64_t (*forward_floats)(const AttentionShape& shape);
  int64_t (*backward_floats)(const AttentionShape& shape);
  /// All heads of key/value head `group`, query blocks first, first + step, … Index:
  /// float_index of the operands.
  void (*forward[kFloats])(const AttentionShape& shape, const AttentionArgs& args, int64_t group,
                           int64_t first, int64_t step, float* scratch);
  /// All gradients of key/value head `group`.
  void (*backward[kFloats])(const AttentionShape& shape, const AttentionArgs& args, int64_t group,
                            float* scratch);
};

/// Every dtype, on vectors.
const AttentionIsa& attention_isa();
/// bf16 alone, on AMX tiles; requires has_amx().
const AttentionIsa& amx_attention_isa();

}  // namespace weft::cpu
