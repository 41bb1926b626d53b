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

enum class Family : uint8_t { gpt2, llama, moe };

struct RopeSpec {
  std::string type = "default";  // default, linear, llama3
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
};

/// Layers of experts; docs/moe.md defines what the numbers do.
struct MoeSpec {
  int64_t num_experts = 0;        // routed, per layer; 0 = no experts
  int64_t top_k = 0;              // experts per token
  int64_t width = 0;              // inside one expert
  int64_t shared = 0;             // experts that see every token: one MLP of shared x width
  std::string score = "softmax";  // or sigmoid, which has a selection bias
  bool normalize = true;          // weights of the chosen experts sum to 1
  double scale = 1.0;             // then times this
  int64_t groups = 1;
  int64_t top_groups = 1;        // groups that a token may choose from
  double aux_coef = 0.0;         // of the balance loss
  double z_coef = 0.0;           // of the z loss
  double bias_rate = 0.0;        // step of the selection bias; 0 = it stays
  double capacity_factor = 0.0;  // 0 = dropless
  std::vector<bool> sparse;      // per layer: experts instead of a dense MLP

  bool selection_bias() const { return score == "sigmoid"; }
};

struct ModelSpec {
  Family family = Family::llama;
  std::string model_type = "llama";  // of config.json: gpt2, llama, mistral, qwen2, qwen3, mixtral,
                                     // qwen3_moe, deepseek, dots1; "" when none can express it
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
  bool gated =
      true;  // llama and moe: MLP and experts are down(act(gate x) * up x), else down(act(up x))
  bool tied = false;
  double initializer_range = 0.02;
  double dropout = 0.0;
  RopeSpec rope;
  std::vector<int64_t> window;  // per layer, 0 = full attention
  bool scale_by_layer = false;  // gpt2 scale_attn_by_inverse_layer_idx
  bool scale_attention = true;  // gpt2 scale_attn_weights
  MoeSpec moe;
  Json hf_config;  // the imported config.json, null without one; kept for export
};

/// From [model]; with `hf` set reads its config.json first (InputError names file and field).
/// `tokenizer_vocab` fills an unset vocab_size. Unknown architectures, activations, rope types and
/// windows are refused by name.
ModelSpec make_model_spec(const ModelConfig& config, std::optional<int64_t> tokenizer_vocab);
/// From a parsed config.json; `where` is its path for messages.
ModelSpec model_spec_from_hf(const Json& hf, const std::string& where);
/// The config.json to export, null when no Hugging Face type can express the model; `dtype` is the
/// stored precision ("bfloat16", "float32", "float16").
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
  bool wide = false;              // a matrix that is fp32 whatever the compute precision
  bool trained = true;            // false: no gradient, no optimizer
};

/// All parameters of the model in a fixed order, as the graph builders create them.
std::vector<ParamSpec> model_parameters(const ModelSpec& spec);

/// Layers with experts.
int64_t count_sparse_layers(const ModelSpec& spec);
bool is_sparse(const ModelSpec& spec, int64_t layer);
/// Weight of one layer of one sequence in the aux loss of a step of `sequences`; 0 without experts.
double aux_share(const ModelSpec& spec, int64_t sequences);
/// Rows of an expert per sequence of `seq_len` tokens; 0 = dropless.
int64_t expert_capacity(const MoeSpec& moe, int64_t seq_len);

int64_t count_parameters(const ModelSpec& spec);
/// Of all experts only those that a token is sent to.
int64_t count_active_parameters(const ModelSpec& spec);
/// Weights that take part in matmuls of a token: embeddings excluded, head included, of the experts
/// those that a token is sent to.
int64_t count_matmul_parameters(const ModelSpec& spec);
/// FLOPs per token of forward and backward: 6 x matmul parameters + attention with the causal half
/// (window respected); docs/metrics.md.
double flops_per_token(const ModelSpec& spec, int64_t seq_len);

}  // namespace weft
