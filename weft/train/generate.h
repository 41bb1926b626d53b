// Sampling text from a model, one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/train/job.h"

namespace weft {

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1.0;  // 0 = always the likeliest token
  int64_t top_k = 0;         // 0 = all
  uint64_t seed = 1234;
};

/// Index of the next token from `logits`: deterministic for a given random number in [0, 1).
/// Ties go to the lowest index.
int64_t sample_token(const std::vector<float>& logits, double temperature, int64_t top_k,
                     double random);

/// Extends `prompt` and calls `emit` for each new id until the end-of-document id or the limit.
/// `job` needs the program "logits"; of longer texts the last positions it holds are seen.
void generate(Job& job, const std::vector<int32_t>& prompt, const GenerateOptions& options,
              const std::function<void(int32_t)>& emit);

}  // namespace weft
