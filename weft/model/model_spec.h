// ModelSpec: one architecture, normalised from [model] or from a Hugging Face config.json. Plain
// data; every field is set. docs/models.md tells how each config.json field is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/config/config.h"

namespace weft {

enum class Family : uint8_t { gpt2, llama };

struct RopeSpec {
  std::string type = "default";  // default, linear, llama3
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
};

struct ModelSpec {
  Family family = Family::llama;
  std::string model_type = "llama";  // of config.json: gpt2, llama, mistral, qwen2, qwen3
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-6;
  std::string activation = "silu";  // kernel kind: silu, gelu, gelu_tanh
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tied = false;
  double initializer_range = 0.02;
  double dropout = 0.0;
  RopeSpec rope;
  std::vector<int64_t> window;  // per layer, 0 = full attention
  bool scale_by_layer = false;  // gpt2 scale_attn_by_inverse_layer_idx
  bool scale_attention = true;  // gpt2 scale_attn_weights
  Json hf_config;               // the imported config.json, null without one; kept for export
};

/// From [model]; with `hf` set reads its config.json first (InputError names file and field).
/// `tokenizer_vocab` fills an unset vocab_size. Unknown architectures, activations, rope types and
/// windows are refused by name.
ModelSpec make_model_spec(const ModelConfig& config, std::optional<int64_t> tokenizer_vocab);
/// From a parsed config.json; `where` is its path for messages.
ModelSpec model_spec_from_hf(const Json& hf, const std::string& where);
/// The config.json to export; `dtype` is the stored precision ("bfloat16", "float32", "float16").
Json hf_config_json(const ModelSpec& spec, const std::string& dtype);

/// One trainable tensor: the piece of a Hugging Face tensor that one operator uses.
struct ParamSpec {
  std::string name;     // state name: the HF name, with "#q" etc. for pieces of fused tensors
  std::string hf_name;  // tensor in the file
  std::vector<int64_t> shape;
  std::vector<int64_t> hf_shape;
  std::vector<int64_t> hf_begin;  // start of the piece in the file tensor
  std::string init;               // "normal", "zeros", "ones"
  bool decay = false;             // matrices only
};

/// All parameters of the model in a fixed order, as the graph builders create them.
std::vector<ParamSpec> model_parameters(const ModelSpec& spec);

int64_t count_parameters(const ModelSpec& spec);
/// Weights that take part in matmuls: embeddings excluded, head included.
int64_t count_matmul_parameters(const ModelSpec& spec);
/// FLOPs per token of forward and backward: 6 x matmul parameters + attention with the causal half
/// (window respected); docs/metrics.md.
double flops_per_token(const ModelSpec& spec, int64_t seq_len);

}  // namespace weft
