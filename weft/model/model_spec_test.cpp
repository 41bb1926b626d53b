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
