#include "weft/model/model_spec.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

Json llama_json() {
  return parse_json(R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,
    "max_position_embeddings":128,"rms_norm_eps":1e-5})",
                    "test");
}

Json with(Json json, const char* key, Json value) {
  json.set(key, std::move(value));
  return json;
}

std::string refusal(const Json& json) {
  try {
    model_spec_from_hf(json, "config.json");
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ExitCode::usage || error.code() == ExitCode::input);
    return error.what();
  }
  return "accepted";
}

TEST(ModelSpec, B41_FlopsOfTheWorkedExample) {
  const ModelSpec spec = model_spec_from_hf(llama_json(), "config.json");
  EXPECT_EQ(count_matmul_parameters(spec), 90112);
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 128), 638976.0);
  // The embedding is no matmul; untied it is one more [V,H].
  EXPECT_EQ(count_parameters(spec), 90112 + 256 * 64 + 5 * 64);
}

Json mixtral_json() {
  Json json = with(llama_json(), "model_type", "mixtral");
  json.set("num_local_experts", 8);
  json.set("num_experts_per_tok", 2);
  return json;
}

TEST(ModelSpec, B41_OnlyExpertsOfATokenCount) {
  const ModelSpec spec = model_spec_from_hf(mixtral_json(), "config.json");
  // Of the worked example the MLP doubles, and each layer has a router.
  EXPECT_EQ(count_matmul_parameters(spec), 90112 + 49152 + 2 * 8 * 64);
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 128), 638976.0 + 6.0 * (49152 + 2 * 8 * 64));
  EXPECT_EQ(count_parameters(spec), 90112 + 7 * 49152 + 2 * 8 * 64 + 256 * 64 + 5 * 64);
  EXPECT_EQ(count_active_parameters(spec), 90112 + 49152 + 2 * 8 * 64 + 256 * 64 + 5 * 64);
}

TEST(ModelSpec, B35_CapacityIsClamped) {
  MoeSpec moe;
  moe.num_experts = 4;
  moe.top_k = 2;
  EXPECT_EQ(expert_capacity(moe, 16), 0);  // dropless
  moe.capacity_factor = 1.0;
  EXPECT_EQ(expert_capacity(moe, 16), 8);
  EXPECT_EQ(expert_capacity(moe, 3), 2);  // 1.5 rounds up
  moe.capacity_factor = 1.25;
  EXPECT_EQ(expert_capacity(moe, 16), 10);
  moe.capacity_factor = 0.01;
  EXPECT_EQ(expert_capacity(moe, 16), 1);
  moe.num_experts = 8;
  moe.capacity_factor = 8.0;
  EXPECT_EQ(expert_capacity(moe, 3), 3);
  moe.capacity_factor = 1e12;
  EXPECT_EQ(expert_capacity(moe, 3), 3);
}

std::vector<bool> sparse_layers(const Json& json) {
  return model_spec_from_hf(json, "x").moe.sparse;
}

TEST(ModelSpec, ExpertFieldsOfEachType) {
  const MoeSpec mixtral = model_spec_from_hf(mixtral_json(), "x").moe;
  EXPECT_EQ(mixtral.width, 128);
  EXPECT_TRUE(mixtral.normalize);
  EXPECT_DOUBLE_EQ(mixtral.aux_coef, 1e-3);
  EXPECT_NE(refusal(with(mixtral_json(), "router_jitter_noise", 0.1)).find("router_jitter_noise"),
            std::string::npos);

  Json qwen = with(with(llama_json(), "model_type", "qwen3_moe"), "num_experts", 8);
  qwen.set("num_hidden_layers", 4);
  EXPECT_FALSE(model_spec_from_hf(qwen, "x").moe.normalize);
  EXPECT_TRUE(model_spec_from_hf(qwen, "x").qk_norm);
  EXPECT_EQ(sparse_layers(with(qwen, "decoder_sparse_step", 2)),
            (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(sparse_layers(with(qwen, "mlp_only_layers", Json(Json::Array{0, 3}))),
            (std::vector<bool>{false, true, true, false}));
  EXPECT_NE(refusal(with(qwen, "mlp_only_layers", Json(Json::Array{4}))).find("mlp_only_layers"),
            std::string::npos);
  EXPECT_NE(refusal(with(qwen, "num_experts_per_tok", 9)).find("experts per token"),
            std::string::npos);

  Json deepseek = with(with(llama_json(), "model_type", "deepseek"), "n_routed_experts", 8);
  deepseek.set("num_hidden_layers", 4);
  deepseek.set("num_experts_per_tok", 2);
  deepseek.set("n_shared_experts", 2);
  deepseek.set("moe_intermediate_size", 48);
  deepseek.set("first_k_dense_replace", 1);
  EXPECT_EQ(sparse_layers(deepseek), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(sparse_layers(with(deepseek, "moe_layer_freq", 2)),
            (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(model_spec_from_hf(deepseek, "x").moe.shared, 2);
  EXPECT_NE(refusal(with(deepseek, "scoring_func", "sigmoid")).find("scoring_func"),
            std::string::npos);
  EXPECT_NE(refusal(with(deepseek, "kv_lora_rank", 8)).find("MLA"), std::string::npos);
  EXPECT_NE(refusal(with(deepseek, "model_type", "deepseek_v3")).find("MLA"), std::string::npos);

  Json dots = with(with(deepseek, "model_type", "dots1"), "n_group", 4);
  dots.set("topk_group", 2);
  dots.set("routed_scaling_factor", 2.5);
  const MoeSpec moe = model_spec_from_hf(dots, "x").moe;
  EXPECT_TRUE(moe.selection_bias());
  EXPECT_EQ(moe.groups, 4);
  EXPECT_EQ(moe.top_groups, 2);
  EXPECT_DOUBLE_EQ(moe.scale, 2.5);
  EXPECT_DOUBLE_EQ(moe.aux_coef, 0.0);
  EXPECT_NE(refusal(with(dots, "n_group", 3)).find("groups"), std::string::npos);
}

ModelConfig moe_config() {
  ModelConfig config;
  config.family = "moe";
  config.hidden_size = 64;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.vocab_size = 256;
  config.moe_intermediate_size = 32;
  config.num_experts = 8;
  config.num_experts_per_tok = 2;
  return config;
}

std::string refused_fields(const ModelConfig& config) {
  try {
    make_model_spec(config, {});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ModelSpec, ExportTypeOfFieldsWithExperts) {
  const auto type = [](const ModelConfig& config) {
    return make_model_spec(config, {}).model_type;
  };
  ModelConfig config = moe_config();
  EXPECT_EQ(type(config), "mixtral");
  config.num_experts_per_tok = 1;
  EXPECT_FALSE(make_model_spec(config, {}).moe.normalize);
  EXPECT_EQ(type(config), "deepseek");
  config = moe_config();
  config.num_shared_experts = 1;
  EXPECT_EQ(type(config), "deepseek");
  config.qk_norm = true;
  EXPECT_NE(refused_fields(config).find("num_shared_experts"), std::string::npos);
  config = moe_config();
  config.qk_norm = true;
  EXPECT_EQ(type(config), "qwen3_moe");
  config = moe_config();
  config.router_score = "sigmoid";
  EXPECT_EQ(type(config), "dots1");
  EXPECT_DOUBLE_EQ(make_model_spec(config, {}).moe.bias_rate, 1e-3);
  config.qk_norm = false;
  EXPECT_NE(refused_fields(config).find("qk_norm"), std::string::npos);
  config = moe_config();
  config.gated_mlp = false;
  EXPECT_EQ(type(config), "");
  EXPECT_TRUE(hf_config_json(make_model_spec(config, {}), "float32").is_null());
  config = moe_config();
  config.n_group = 2;
  EXPECT_NE(refused_fields(config).find("sigmoid"), std::string::npos);
  config = moe_config();
  config.router_bias_rate = 0.1;
  EXPECT_NE(refused_fields(config).find("router_bias_rate"), std::string::npos);
  config = moe_config();
  config.first_k_dense_replace = 1;
  EXPECT_NE(refused_fields(config).find("intermediate_size"), std::string::npos);
  config.intermediate_size = 100;
  EXPECT_EQ(make_model_spec(config, {}).moe.sparse, (std::vector<bool>{false, true, true}));
}

TEST(ModelSpec, B30_ExplicitHeadDimWins) {
  const ModelSpec spec = model_spec_from_hf(with(llama_json(), "head_dim", 32), "config.json");
  EXPECT_EQ(spec.head_dim, 32);
  EXPECT_EQ(model_spec_from_hf(llama_json(), "x").head_dim, 16);
  EXPECT_EQ(model_spec_from_hf(with(llama_json(), "head_dim", nullptr), "x").head_dim, 16);
  const Json odd = with(with(with(llama_json(), "hidden_size", 20), "num_attention_heads", 3),
                        "num_key_value_heads", 1);
  EXPECT_NE(refusal(odd).find("head_dim"), std::string::npos);
  EXPECT_EQ(model_spec_from_hf(with(odd, "head_dim", 8), "x").head_dim, 8);
  EXPECT_NE(refusal(with(llama_json(), "head_dim", 0)).find("head_dim"), std::string::npos);
  EXPECT_NE(refusal(with(llama_json(), "head_dim", 15)).find("even"), std::string::npos);
}

TEST(ModelSpec, B75_WindowFieldsOfEachFamily) {
  const auto window = [](const Json& json) { return model_spec_from_hf(json, "x").window; };
  const std::vector<int64_t> none = {0, 0};
  const std::vector<int64_t> both = {4, 4};
  const std::vector<int64_t> second = {0, 4};
  Json mistral = with(llama_json(), "model_type", "mistral");
  EXPECT_EQ(window(mistral), none);
  EXPECT_EQ(window(with(mistral, "sliding_window", nullptr)), none);
  EXPECT_EQ(window(with(mistral, "sliding_window", 4)), both);
  Json qwen = with(with(llama_json(), "model_type", "qwen2"), "sliding_window", 4);
  qwen.set("max_window_layers", 1);
  EXPECT_EQ(window(qwen), none);
  EXPECT_EQ(window(with(qwen, "use_sliding_window", false)), none);
  EXPECT_EQ(window(with(qwen, "use_sliding_window", true)), second);
  const Json types = Json(Json::Array{"sliding_attention", "full_attention"});
  EXPECT_EQ(window(with(with(qwen, "layer_types", types), "use_sliding_window", true)),
            (std::vector<int64_t>{4, 0}));
  EXPECT_NE(refusal(with(qwen, "layer_types", types)).find("use_sliding_window"),
            std::string::npos);
  EXPECT_NE(refusal(with(llama_json(), "sliding_window", 4)).find("window"), std::string::npos);
}

TEST(ModelSpec, B76_ActivationsAndEpsilonOfTheFile) {
  EXPECT_EQ(model_spec_from_hf(with(llama_json(), "hidden_act", "gelu"), "x").activation, "gelu");
  EXPECT_EQ(
      model_spec_from_hf(with(llama_json(), "hidden_act", "gelu_pytorch_tanh"), "x").activation,
      "gelu_tanh");
  EXPECT_NE(refusal(with(llama_json(), "hidden_act", "mish")).find("mish"), std::string::npos);
  EXPECT_DOUBLE_EQ(model_spec_from_hf(llama_json(), "x").norm_eps, 1e-5);
}

TEST(ModelSpec, RopeVariantsInBothSpellings) {
  const Json llama3 = parse_json(
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":64})",
      "x");
  Json old_form = with(with(llama_json(), "rope_theta", 500000.0), "rope_scaling", llama3);
  EXPECT_EQ(model_spec_from_hf(old_form, "x").rope.type, "llama3");
  EXPECT_DOUBLE_EQ(model_spec_from_hf(old_form, "x").rope.theta, 500000.0);
  Json parameters = with(llama3, "rope_theta", 500000.0);
  EXPECT_DOUBLE_EQ(
      model_spec_from_hf(with(llama_json(), "rope_parameters", parameters), "x").rope.theta,
      500000.0);
  const Json yarn = parse_json(R"({"type":"yarn","factor":4.0})", "x");
  EXPECT_NE(refusal(with(llama_json(), "rope_scaling", yarn)).find("yarn"), std::string::npos);
}

TEST(ModelSpec, UnknownArchitecturesAreRefusedByName) {
  EXPECT_NE(refusal(with(llama_json(), "model_type", "mamba")).find("mamba"), std::string::npos);
  EXPECT_NE(refusal(with(llama_json(), "hidden_size", "64")).find("hidden_size"),
            std::string::npos);
}

TEST(ModelSpec, ExportedExpertsReadBackEqual) {
  std::vector<ModelConfig> configs(4, moe_config());
  configs[1].qk_norm = true;
  configs[1].first_k_dense_replace = 1;
  configs[1].intermediate_size = 80;
  configs[2].num_shared_experts = 2;
  configs[2].norm_topk_prob = false;
  configs[2].first_k_dense_replace = 2;
  configs[2].intermediate_size = 80;
  configs[3].router_score = "sigmoid";
  configs[3].num_shared_experts = 1;
  configs[3].n_group = 4;
  configs[3].topk_group = 2;
  configs[3].routed_scaling_factor = 1.5;
  configs[3].sliding_window = 7;
  for (ModelConfig& config : configs) {
    config.router_aux_loss_coef = 0.25;
    const ModelSpec spec = make_model_spec(config, {});
    const ModelSpec back = model_spec_from_hf(hf_config_json(spec, "float32"), "y");
    SCOPED_TRACE(spec.model_type);
    EXPECT_EQ(back.model_type, spec.model_type);
    EXPECT_EQ(back.window, spec.window);
    EXPECT_EQ(back.moe.sparse, spec.moe.sparse);
    EXPECT_EQ(back.moe.shared, spec.moe.shared);
    EXPECT_EQ(back.moe.normalize, spec.moe.normalize);
    EXPECT_EQ(back.moe.score, spec.moe.score);
    EXPECT_EQ(back.moe.groups, spec.moe.groups);
    EXPECT_EQ(back.moe.top_groups, spec.moe.top_groups);
    EXPECT_EQ(back.moe.scale, spec.moe.scale);
    EXPECT_EQ(back.moe.aux_coef, spec.moe.aux_coef);
    EXPECT_EQ(count_parameters(back), count_parameters(spec));
    EXPECT_EQ(count_active_parameters(back), count_active_parameters(spec));
  }
}

TEST(ModelSpec, ExportedConfigReadsBackEqual) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    Json json = with(with(llama_json(), "model_type", type), "head_dim", 16);
    ModelSpec spec = model_spec_from_hf(json, "x");
    spec.hf_config = Json();  // as of a model made from fields
    const ModelSpec back = model_spec_from_hf(hf_config_json(spec, "float32"), "y");
    EXPECT_EQ(back.model_type, type);
    EXPECT_EQ(back.qkv_bias, spec.qkv_bias);
    EXPECT_EQ(back.qk_norm, spec.qk_norm);
    EXPECT_EQ(back.tied, spec.tied);
    EXPECT_EQ(back.norm_eps, spec.norm_eps);
    EXPECT_EQ(count_parameters(back), count_parameters(spec)) << type;
  }
}

}  // namespace
}  // namespace weft
