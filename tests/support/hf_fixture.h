// Writes tiny Hugging Face folders whose losses are known by hand.
//
// Zero model: every weight 0, so every logit is 0 and every loss is ln(vocab).
//
// Bigram model: llama with hidden = vocab, untied, embedding = identity, o_proj and down_proj 0
// (the blocks add nothing), gains 1. After the final norm the hidden state of token c is its
// one-hot times 1 / sqrt(1 / vocab + eps), so column c of lm_head alone decides the logits after
// token c, whatever the layout, the attention or the position.
#pragma once

#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "weft/base/json.h"
#include "weft/io/hf_folder.h"

namespace weft::test {

/// Makes `folder` and writes config.json and the weights, sharded above `shard_bytes`.
void write_hf_folder(const std::string& folder, const Json& config, const Tensors& tensors,
                     int64_t shard_bytes = kDefaultShardBytes);

struct TinyLlama {
  int64_t vocab = 8;  // = hidden size; a multiple of 2 x heads
  int64_t layers = 2;
  int64_t heads = 2;
  int64_t kv_heads = 1;
  int64_t intermediate = 16;
  int64_t max_positions = 4096;
  double eps = 1e-6;
  bool tied = false;
  DType dtype = DType::f32;
};

Json tiny_llama_config(const TinyLlama& shape);
/// Every tensor of the shape, all zeros.
Tensors zero_tensors(const TinyLlama& shape);

/// columns[c][r] becomes lm_head[r][c]; absent columns and rows are 0.
using BigramColumns = std::vector<std::vector<double>>;
Tensors bigram_tensors(const TinyLlama& shape, const BigramColumns& columns);

void write_zero_model(const std::string& folder, const TinyLlama& shape);
void write_bigram_model(const std::string& folder, const TinyLlama& shape,
                        const BigramColumns& columns);

/// Loss of predicting `target` after `token`, from the columns as rounded to shape.dtype.
double bigram_loss(const TinyLlama& shape, const BigramColumns& columns, int64_t token,
                   int64_t target);

}  // namespace weft::test
