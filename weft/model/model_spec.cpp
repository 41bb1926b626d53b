// ModelSpec from [model] fields, and the numbers that follow from a ModelSpec.
#include "weft/model/model_spec.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/shape.h"
#include "weft/model/blocks.h"
#include "weft/model/hf_config.h"
#include "weft/model/moe_config.h"

namespace weft {
namespace {

int64_t required(const std::optional<int64_t>& value, const char* key) {
  if (!value) {
    throw UsageError("model",
                     fmt::format("got no {}, expected a value; try [model] {} = …", key, key));
  }
  return *value;
}

/// With `hf` the architecture comes from the file; a field beside it would be ambiguous.
void refuse_fields_beside_hf(const ModelConfig& c) {
  const std::pair<const char*, bool> given[] = {
      {"hidden_size", c.hidden_size.has_value()},
      {"intermediate_size", c.intermediate_size.has_value()},
      {"num_hidden_layers", c.num_hidden_layers.has_value()},
      {"num_attention_heads", c.num_attention_heads.has_value()},
      {"num_key_value_heads", c.num_key_value_heads.has_value()},
      {"head_dim", c.head_dim.has_value()},
      {"vocab_size", c.vocab_size.has_value()},
      {"max_position_embeddings", c.max_position_embeddings.has_value()},
      {"rms_norm_eps", c.rms_norm_eps.has_value()},
      {"rope_theta", c.rope_theta.has_value()},
      {"rope_parameters", c.rope_parameters.has_value()},
      {"tie_word_embeddings", c.tie_word_embeddings.has_value()},
      {"hidden_act", c.hidden_act.has_value()},
      {"attention_bias", c.attention_bias.has_value()},
      {"mlp_bias", c.mlp_bias.has_value()},
      {"gated_mlp", c.gated_mlp.has_value()},
      {"qk_norm", c.qk_norm.has_value()},
      {"sliding_window", c.sliding_window.has_value()},
      {"initializer_range", c.initializer_range.has_value()},
      {"num_experts", c.num_experts.has_value()},
      {"num_experts_per_tok", c.num_experts_per_tok.has_value()},
      {"num_shared_experts", c.num_shared_experts.has_value()},
      {"moe_intermediate_size", c.moe_intermediate_size.has_value()},
      {"norm_topk_prob", c.norm_topk_prob.has_value()},
      {"router_score", c.router_score.has_value()},
      {"routed_scaling_factor", c.routed_scaling_factor.has_value()},
      {"n_group", c.n_group.has_value()},
      {"topk_group", c.topk_group.has_value()},
      {"first_k_dense_replace", c.first_k_dense_replace.has_value()},
  };
  for (const auto& [key, set] : given) {
    if (set) {
      throw UsageError("model", fmt::format("got both hf and {}, expected one; try changing {} in "
                                            "the config.json of the hf folder",
                                            key, key));
    }
  }
}

ModelSpec from_fields(const ModelConfig& config, std::optional<int64_t> tokenizer_vocab) {
  ModelSpec spec;
  const bool gpt2 = config.family == "gpt2";
  const bool moe = config.family == "moe";
  if (!gpt2 && !moe && config.family != "llama") {
    throw UsageError("model.family",
                     fmt::format("got \"{}\", expected gpt2, llama or moe; try one of them, or hf "
                                 "= a folder with config.json",
                                 config.family));
  }
  spec.family = gpt2 ? Family::gpt2 : moe ? Family::moe : Family::llama;
  spec.hidden_size = required(config.hidden_size, "hidden_size");
  spec.num_layers = required(config.num_hidden_layers, "num_hidden_layers");
  spec.num_heads = required(config.num_attention_heads, "num_attention_heads");
  spec.intermediate_size = gpt2 ? config.intermediate_size.value_or(4 * spec.hidden_size)
                           : moe && config.moe_intermediate_size
                               ? config.intermediate_size.value_or(*config.moe_intermediate_size)
                               : required(config.intermediate_size, "intermediate_size");
  spec.num_kv_heads = config.num_key_value_heads.value_or(spec.num_heads);
  spec.head_dim = resolve_head_dim(config.head_dim, spec.hidden_size, spec.num_heads, "model");
  if (config.vocab_size) {
    spec.vocab_size = *config.vocab_size;
  } else if (tokenizer_vocab) {
    spec.vocab_size = *tokenizer_vocab;
  } else {
    throw UsageError("model.vocab_size",
                     "got none and no readable tokenizer, expected a size; try vocab_size = …");
  }
  spec.max_positions = config.max_position_embeddings.value_or(gpt2 ? 1024 : 2048);
  spec.norm_eps = config.rms_norm_eps.value_or(gpt2 ? 1e-5 : 1e-6);
  spec.activation = resolve_activation(config.hidden_act.value_or(gpt2 ? "gelu_new" : "silu"),
                                       "model.hidden_act");
  spec.tied = config.tie_word_embeddings.value_or(gpt2);
  spec.qkv_bias = gpt2 || config.attention_bias.value_or(false);
  spec.o_bias = spec.qkv_bias;
  spec.mlp_bias = gpt2 || config.mlp_bias.value_or(false);
  spec.qk_norm = config.qk_norm.value_or(moe && config.router_score == "sigmoid");
  spec.initializer_range = config.initializer_range.value_or(0.02);
  if (gpt2 && (config.rope_theta || config.rope_parameters || config.qk_norm ||
               config.sliding_window || config.head_dim)) {
    throw UsageError("model",
                     "got a rotary, window, head_dim or qk_norm key with family gpt2, which "
                     "has none; try family = \"llama\" or drop the key");
  }
  const bool window = config.sliding_window.value_or(0) > 0;
  if (!moe && (spec.qk_norm || window) && spec.mlp_bias) {
    throw UsageError("model.mlp_bias",
                     "got true with qk_norm or sliding_window, which no Hugging "
                     "Face family can express; try mlp_bias = false");
  }
  if (!moe && window && spec.qkv_bias && !spec.qk_norm) {
    throw UsageError("model.attention_bias",
                     "got true with sliding_window, which the mistral family cannot express; try "
                     "attention_bias = false");
  }
  if (config.rope_theta) spec.rope.theta = *config.rope_theta;
  if (config.rope_parameters)
    spec.rope = rope_from_json(*config.rope_parameters, spec.rope.theta, "model.rope_parameters");
  spec.window.assign(static_cast<size_t>(spec.num_layers), config.sliding_window.value_or(0));
  spec.model_type = gpt2                    ? "gpt2"
                    : spec.qk_norm          ? "qwen3"
                    : config.sliding_window ? "mistral"
                                            : "llama";
  if (moe) read_moe_fields(spec, config);
  return spec;
}

}  // namespace

ModelSpec make_model_spec(const ModelConfig& config, std::optional<int64_t> tokenizer_vocab) {
  ModelSpec spec;
  if (!config.hf.empty()) {
    refuse_fields_beside_hf(config);
    const std::string path = config.hf + "/config.json";
    spec = model_spec_from_hf(read_json_file(path), path);
    if (!config.family.empty() && (config.family == "gpt2") != (spec.family == Family::gpt2)) {
      throw UsageError("model.family", fmt::format("got {}, expected the family of {} ({})",
                                                   config.family, path, spec.model_type));
    }
  } else {
    spec = from_fields(config, tokenizer_vocab);
  }
  spec.dropout = config.dropout;
  apply_moe_training(spec, config);
  check_model_spec(spec, config.hf.empty() ? "model" : config.hf + "/config.json");
  return spec;
}

std::vector<ParamSpec> model_parameters(const ModelSpec& spec) {
  return spec.family == Family::gpt2 ? gpt2_parameters(spec) : llama_parameters(spec);
}

namespace {

bool is_embedding(const ParamSpec& parameter) {
  return parameter.name.find("embed_tokens") != std::string::npos ||
         parameter.name.find(".wte.") != std::string::npos ||
         parameter.name.find(".wpe.") != std::string::npos;
}

/// Elements that one token meets: all, of stacked experts those it is sent to.
int64_t active_elements(const ModelSpec& spec, const ParamSpec& parameter) {
  const int64_t all = num_elements(parameter.shape);
  return parameter.shape.size() == 3 ? all / spec.moe.num_experts * spec.moe.top_k : all;
}

}  // namespace

int64_t count_parameters(const ModelSpec& spec) {
  int64_t count = 0;
  for (const ParamSpec& parameter : model_parameters(spec)) {
    if (parameter.trained) count += num_elements(parameter.shape);
  }
  return count;
}

int64_t count_active_parameters(const ModelSpec& spec) {
  int64_t count = 0;
  for (const ParamSpec& parameter : model_parameters(spec)) {
    if (parameter.trained) count += active_elements(spec, parameter);
  }
  return count;
}

int64_t count_matmul_parameters(const ModelSpec& spec) {
  int64_t count = spec.vocab_size * spec.hidden_size;  // head
  for (const ParamSpec& parameter : model_parameters(spec)) {
    if (parameter.shape.size() < 2 || is_embedding(parameter)) continue;
    if (parameter.name != "lm_head.weight") count += active_elements(spec, parameter);
  }
  return count;
}

double flops_per_token(const ModelSpec& spec, int64_t seq_len) {
  double flops = 6.0 * static_cast<double>(count_matmul_parameters(spec));
  for (const int64_t window : spec.window) {
    const auto seq = static_cast<double>(seq_len);
    const double w = window > 0 ? std::min(static_cast<double>(window), seq) : seq;
    const double visible = w - w * w / (2.0 * seq);  // mean number of keys a query sees
    flops += 12.0 * static_cast<double>(spec.num_heads * spec.head_dim) * visible;
  }
  return flops;
}

}  // namespace weft
