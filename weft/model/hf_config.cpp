#include "weft/model/hf_config.h"

#include <algorithm>
#include <initializer_list>

#include "weft/base/check.h"
#include "weft/model/hf_fields.h"
#include "weft/model/hf_moe.h"
#include "weft/model/moe_config.h"

namespace weft {
namespace {

void read_gpt2(ModelSpec& spec, const HfFields& f, const std::string& where) {
  spec.family = Family::gpt2;
  spec.hidden_size = f.integer("n_embd");
  spec.num_layers = f.integer("n_layer");
  spec.num_heads = f.integer("n_head");
  spec.num_kv_heads = spec.num_heads;
  spec.head_dim = resolve_head_dim(std::nullopt, spec.hidden_size, spec.num_heads, where);
  spec.intermediate_size = f.integer("n_inner", 4 * spec.hidden_size);
  spec.vocab_size = f.integer("vocab_size");
  spec.max_positions = f.integer("n_positions", 1024);
  spec.norm_eps = f.number("layer_norm_epsilon", 1e-5);
  spec.activation = resolve_activation(f.text("activation_function", "gelu_new"),
                                       where + ": activation_function");
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.tied = f.boolean("tie_word_embeddings", true);
  spec.scale_attention = f.boolean("scale_attn_weights", true);
  spec.scale_by_layer = f.boolean("scale_attn_by_inverse_layer_idx", false);
  spec.window.assign(static_cast<size_t>(std::max<int64_t>(spec.num_layers, 0)), 0);
}

bool is_one_of(const std::string& type, std::initializer_list<const char*> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

/// First layer with a window, of those types that have one.
int64_t first_window_layer(const std::string& type, const HfFields& f) {
  if (is_one_of(type, {"qwen2", "qwen3"})) return f.integer("max_window_layers", 28);
  return type == "dots1" ? f.integer("max_window_layers", 62) : 0;
}

/// Window per layer as each family defines it: layer_types wins, then the family's own switch.
std::vector<int64_t> read_window(const ModelSpec& spec, const HfFields& f,
                                 const std::string& where) {
  const auto layers = static_cast<size_t>(std::max<int64_t>(spec.num_layers, 0));
  const int64_t size = f.integer("sliding_window", 0);
  const bool qwen = is_one_of(spec.model_type, {"qwen2", "qwen3", "qwen3_moe"});
  const bool enabled = qwen ? f.boolean("use_sliding_window", false) : size > 0;
  std::vector<int64_t> window(layers, 0);
  if (const Json* types = f.find("layer_types")) {
    if (!types->is_array() || types->as_array().size() != layers) {
      f.wrong("layer_types", "one entry per layer");
    }
    for (size_t i = 0; i < layers; ++i) {
      const std::string& type = types->as_array()[i].as_string();
      if (type == "full_attention") continue;
      if (type != "sliding_attention")
        f.wrong("layer_types", "full_attention or sliding_attention");
      if (size <= 0) f.wrong("layer_types", "a sliding_window beside sliding_attention");
      if (qwen && !enabled) {
        f.wrong("layer_types", "use_sliding_window = true beside sliding_attention");
      }
      window[i] = size;
    }
    return window;
  }
  if (!enabled || size <= 0) return window;
  if (is_one_of(spec.model_type, {"llama", "deepseek"})) {
    throw InputError(
        where, fmt::format("got sliding_window with model_type {}, which has no "
                           "window; try model_type {}",
                           spec.model_type, spec.family == Family::moe ? "mixtral" : "mistral"));
  }
  const int64_t first = first_window_layer(spec.model_type, f);
  for (size_t i = 0; i < layers; ++i) {
    if (static_cast<int64_t>(i) >= first) window[i] = size;
  }
  return window;
}

void read_llama(ModelSpec& spec, const HfFields& f, const std::string& where) {
  const bool moe = is_moe_type(spec.model_type);
  const bool mixtral = spec.model_type == "mixtral";
  spec.family = moe ? Family::moe : Family::llama;
  spec.hidden_size = f.integer("hidden_size");
  spec.num_layers = f.integer("num_hidden_layers");
  spec.num_heads = f.integer("num_attention_heads");
  spec.num_kv_heads = f.integer("num_key_value_heads", spec.num_heads);
  std::optional<int64_t> head_dim;
  if (f.find("head_dim") != nullptr) head_dim = f.integer("head_dim");
  if (!head_dim && spec.model_type == "qwen3") head_dim = 128;  // default of that configuration
  spec.head_dim = resolve_head_dim(head_dim, spec.hidden_size, spec.num_heads, where);
  spec.intermediate_size = f.find("intermediate_size") == nullptr && moe
                               ? f.integer("moe_intermediate_size")
                               : f.integer("intermediate_size");
  spec.vocab_size = f.integer("vocab_size");
  spec.max_positions = f.integer("max_position_embeddings", 2048);
  spec.norm_eps = f.number("rms_norm_eps", mixtral ? 1e-5 : 1e-6);
  spec.activation = resolve_activation(f.text("hidden_act", "silu"), where + ": hidden_act");
  const bool attention_bias = f.boolean("attention_bias", false);
  const bool mistral = spec.model_type == "mistral" || mixtral;
  spec.qkv_bias = spec.model_type == "qwen2" || (!mistral && attention_bias);
  spec.o_bias = spec.model_type != "qwen2" && !mistral && attention_bias;
  spec.mlp_bias = spec.model_type == "llama" && f.boolean("mlp_bias", false);
  spec.qk_norm = is_one_of(spec.model_type, {"qwen3", "qwen3_moe", "dots1"});
  spec.tied = f.boolean("tie_word_embeddings", false);
  const double theta = f.number("rope_theta", mixtral ? 1e6 : 10000.0);
  spec.rope.theta = theta;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* rope = f.find(key))
      spec.rope = rope_from_json(*rope, theta, where + ": " + key);
  }
  spec.window = read_window(spec, f, where);
  if (moe) read_moe(spec, f, where);
}

Json rope_json(const RopeSpec& rope) {
  Json json = Json::object({{"rope_type", rope.type}, {"factor", rope.factor}});
  if (rope.type == "llama3") {
    json.set("low_freq_factor", rope.low_freq_factor);
    json.set("high_freq_factor", rope.high_freq_factor);
    json.set("original_max_position_embeddings", rope.original_max_position);
  }
  return json;
}

Json make_llama_json(const ModelSpec& spec) {
  const std::string type = spec.family == Family::moe      ? spec.model_type
                           : spec.qk_norm                  ? "qwen3"
                           : spec.qkv_bias && !spec.o_bias ? "qwen2"
                           : spec.model_type == "mistral"  ? "mistral"
                                                           : "llama";
  const std::string architecture = spec.family == Family::moe ? moe_architecture(type)
                                   : type == "qwen3"          ? "Qwen3ForCausalLM"
                                   : type == "qwen2"          ? "Qwen2ForCausalLM"
                                   : type == "mistral"        ? "MistralForCausalLM"
                                                              : "LlamaForCausalLM";
  const char* act = spec.activation == "gelu_tanh" ? "gelu_pytorch_tanh" : spec.activation.c_str();
  Json json =
      Json::object({{"architectures", Json(Json::Array{Json(architecture)})},
                    {"model_type", type},
                    {"hidden_size", spec.hidden_size},
                    {"intermediate_size", spec.intermediate_size},
                    {"num_hidden_layers", spec.num_layers},
                    {"num_attention_heads", spec.num_heads},
                    {"num_key_value_heads", spec.num_kv_heads},
                    {"head_dim", spec.head_dim},
                    {"vocab_size", spec.vocab_size},
                    {"max_position_embeddings", spec.max_positions},
                    {"rms_norm_eps", spec.norm_eps},
                    {"hidden_act", act},
                    {"rope_theta", spec.rope.theta},
                    {"rope_scaling", spec.rope.type == "default" ? Json() : rope_json(spec.rope)},
                    {"attention_bias", spec.o_bias},
                    {"tie_word_embeddings", spec.tied},
                    {"initializer_range", spec.initializer_range}});
  if (type == "llama") json.set("mlp_bias", spec.mlp_bias);
  if (spec.family == Family::moe) add_moe_json(spec, json);
  const int64_t window = spec.window.empty() ? 0 : spec.window[0];
  if (is_one_of(type, {"mistral", "mixtral", "dots1"}))
    json.set("sliding_window", window > 0 ? Json(window) : Json());
  if (is_one_of(type, {"qwen2", "qwen3", "qwen3_moe"}) && window > 0) {
    json.set("use_sliding_window", true);
    json.set("sliding_window", window);
  }
  if (is_one_of(type, {"qwen2", "qwen3", "dots1"}) && window > 0) {
    json.set("max_window_layers", int64_t{0});
  }
  return json;
}

Json make_gpt2_json(const ModelSpec& spec) {
  return Json::object(
      {{"architectures", Json(Json::Array{Json("GPT2LMHeadModel")})},
       {"model_type", "gpt2"},
       {"n_embd", spec.hidden_size},
       {"n_layer", spec.num_layers},
       {"n_head", spec.num_heads},
       {"n_inner", spec.intermediate_size},
       {"n_positions", spec.max_positions},
       {"vocab_size", spec.vocab_size},
       {"layer_norm_epsilon", spec.norm_eps},
       {"activation_function", spec.activation == "gelu_tanh" ? "gelu_new" : spec.activation},
       {"tie_word_embeddings", spec.tied},
       {"resid_pdrop", spec.dropout},
       {"embd_pdrop", spec.dropout},
       {"attn_pdrop", 0.0},
       {"bos_token_id", Json()},
       {"eos_token_id", Json()},
       {"initializer_range", spec.initializer_range}});
}

}  // namespace

std::string resolve_activation(const std::string& name, const std::string& where) {
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu") return "gelu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_tanh") return "gelu_tanh";
  throw UsageError(where, fmt::format("got activation \"{}\", expected silu, gelu, gelu_new or "
                                      "gelu_pytorch_tanh",
                                      name));
}

int64_t resolve_head_dim(std::optional<int64_t> head_dim, int64_t hidden, int64_t heads,
                         const std::string& where) {
  if (head_dim) return *head_dim;
  if (heads <= 0 || hidden % heads != 0) {
    throw UsageError(where,
                     fmt::format("got hidden size {} and {} heads without head_dim, expected "
                                 "a multiple; try setting head_dim",
                                 hidden, heads));
  }
  return hidden / heads;
}

RopeSpec rope_from_json(const Json& json, double theta, const std::string& where) {
  if (!json.is_object()) throw InputError(where, "got something else, expected an object");
  const HfFields f(json, where);
  RopeSpec rope;
  rope.theta = f.number("rope_theta", theta);
  rope.type = f.text("rope_type", f.text("type", "default"));
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3") {
    throw UsageError(
        where, fmt::format("got rope type \"{}\", expected default, linear or llama3", rope.type));
  }
  if (f.number("partial_rotary_factor", 1.0) != 1.0) {
    throw UsageError(where, "got a partial_rotary_factor other than 1, which is not supported");
  }
  if (rope.type == "default") return rope;
  rope.factor = f.at("factor").as_double();
  if (rope.type == "llama3") {
    rope.low_freq_factor = f.at("low_freq_factor").as_double();
    rope.high_freq_factor = f.at("high_freq_factor").as_double();
    rope.original_max_position = f.integer("original_max_position_embeddings");
  }
  return rope;
}

void check_model_spec(const ModelSpec& spec, const std::string& where) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden size", spec.hidden_size},         {"intermediate size", spec.intermediate_size},
      {"number of layers", spec.num_layers},     {"number of heads", spec.num_heads},
      {"number of kv heads", spec.num_kv_heads}, {"head_dim", spec.head_dim},
      {"vocab_size", spec.vocab_size},           {"max positions", spec.max_positions}};
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size >= kLimit) {
      throw UsageError(where, fmt::format("{}: got {}, expected 1 to {}", name, size, kLimit - 1));
    }
  }
  if (spec.num_heads % spec.num_kv_heads != 0) {
    throw UsageError(where, fmt::format("got {} heads and {} kv heads, expected a multiple",
                                        spec.num_heads, spec.num_kv_heads));
  }
  if (spec.family != Family::gpt2 && spec.head_dim % 2 != 0) {
    throw UsageError(where, fmt::format("got head_dim {}, expected an even number with rotary "
                                        "positions",
                                        spec.head_dim));
  }
  check_moe(spec, where);
  if (!(spec.norm_eps > 0)) {
    throw UsageError(where, fmt::format("got norm epsilon {}, expected > 0", spec.norm_eps));
  }
}

ModelSpec model_spec_from_hf(const Json& hf, const std::string& where) {
  const HfFields f(hf, where);
  ModelSpec spec;
  spec.hf_config = hf;
  spec.model_type = f.text("model_type", "");
  if (spec.model_type == "gpt2") {
    read_gpt2(spec, f, where);
  } else if (is_moe_type(spec.model_type) ||
             is_one_of(spec.model_type, {"llama", "mistral", "qwen2", "qwen3"})) {
    read_llama(spec, f, where);
  } else {
    const bool latent = is_one_of(spec.model_type, {"deepseek_v2", "deepseek_v3"});
    throw UsageError(where,
                     fmt::format("got model_type \"{}\"{}, expected gpt2, llama, mistral, "
                                 "qwen2, qwen3, mixtral, qwen3_moe, deepseek or dots1",
                                 spec.model_type,
                                 latent ? ", whose latent attention (MLA) is not supported" : ""));
  }
  spec.initializer_range = f.number("initializer_range", 0.02);
  check_model_spec(spec, where);
  return spec;
}

Json hf_config_json(const ModelSpec& spec, const std::string& dtype) {
  if (spec.model_type.empty()) return {};
  Json json = !spec.hf_config.is_null()     ? spec.hf_config
              : spec.family == Family::gpt2 ? make_gpt2_json(spec)
                                            : make_llama_json(spec);
  if (json.contains("dtype")) json.set("dtype", dtype);
  if (json.contains("torch_dtype") || !json.contains("dtype")) json.set("torch_dtype", dtype);
  return json;
}

}  // namespace weft
