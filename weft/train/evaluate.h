// Token-weighted evaluation over a whole validation set. Reads no training state but the weights
// and changes none.
#pragma once

#include <cstdint>

#include "weft/data/dataset.h"
#include "weft/runtime/session.h"

namespace weft {

struct EvalResult {
  double loss = 0;  // sum of token losses / valid labels; 0 when there is no valid label
  double perplexity = 1;
  int64_t tokens = 0;  // labels that count
};

/// Runs program "eval" over every sample once; called by all ranks, which get the same result.
EvalResult evaluate(Session& session, const Dataset& dataset);

}  // namespace weft
