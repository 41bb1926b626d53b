// Row loops of the losses, as function pointers for the CPU this process runs on.
#pragma once

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

/// Index: float_index of the logits. `label` < 0: no label (all of the softmax counts).
struct LossIsa {
  /// log sum exp of one row, and the logit of `label`.
  double (*log_sum_exp[kFloats])(int64_t width, const void* logits, int64_t label, double* picked);
  /// out[c] = scale * (exp(logits[c] - lse) - (c == label)); may overwrite the logits.
  void (*softmax_grad[kFloats])(int64_t width, const void* logits, float lse, float scale,
                                int64_t label, void* out);
  /// From f32 logits, in one go: returns lse - logits[label] and overwrites the row with the
  /// gradient as f32, or as bf16 in the first half of the row's memory (index 1).
  double (*train[2])(int64_t width, float* logits, float scale, int64_t label);
};

const LossIsa& loss_isa();

}  // namespace weft::cpu
