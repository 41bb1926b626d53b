// A small model for the tests of passes.
#pragma once

#include <string>

#include "weft/config/config.h"

namespace weft {

inline Config small_config(const std::string& family, int64_t layers) {
  Config config;
  config.model.family = family;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 40;
  config.model.num_hidden_layers = layers;
  config.model.num_attention_heads = 4;
  config.model.vocab_size = 31;
  config.data.seq_len = 8;
  config.train.micro_batch = 2;
  config.train.accumulation = 2;
  config.train.global_batch = 4;
  config.precision.compute = "fp32";
  config.device.threads = 1;
  return config;
}

}  // namespace weft
