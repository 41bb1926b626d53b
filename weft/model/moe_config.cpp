#include "weft/model/moe_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr double kAuxCoefficient = 1e-3;
constexpr double kBiasRate = 1e-3;

[[noreturn]] void refuse(const char* key, const std::string& text) {
  throw UsageError(fmt::format("model.{}", key), text);
}

/// What each type of config.json can say, so that what is trained can be exported; "" for what can
/// be trained only.
std::string model_type_of(const ModelSpec& spec, const ModelConfig& config) {
  const MoeSpec& moe = spec.moe;
  const bool dense_layers = count_sparse_layers(spec) < spec.num_layers;
  const bool window = config.sliding_window.value_or(0) > 0;
  if (config.mlp_bias.value_or(false)) {
    refuse("mlp_bias",
           "got true with family moe, which no Hugging Face family can express; try mlp_bias = "
           "false");
  }
  if (!spec.gated) return "";
  if (moe.score == "sigmoid") {
    if (spec.qk_norm) return "dots1";
    refuse("qk_norm",
           "got false with router_score = \"sigmoid\", which no Hugging Face family with plain "
           "attention can express; try qk_norm = true");
  }
  if (spec.qk_norm) {
    if (moe.shared == 0) return "qwen3_moe";
    refuse("num_shared_experts",
           fmt::format("got {} with qk_norm and softmax scores, which no Hugging Face family can "
                       "express; try qk_norm = false",
                       moe.shared));
  }
  if (moe.shared == 0 && !dense_layers && moe.normalize && !spec.qkv_bias) return "mixtral";
  if (!window && spec.head_dim * spec.num_heads == spec.hidden_size) return "deepseek";
  refuse(window ? "sliding_window" : "head_dim",
         "got a value with shared experts, dense layers, attention_bias or norm_topk_prob = false, "
         "which no Hugging Face family can express; try removing it, or qk_norm = true");
}

void refuse_with_softmax(const ModelConfig& c) {
  const std::pair<const char*, bool> given[] = {
      {"routed_scaling_factor", c.routed_scaling_factor.value_or(1.0) != 1.0},
      {"n_group", c.n_group.value_or(1) != 1},
      {"topk_group", c.topk_group.value_or(1) != 1}};
  for (const auto& [key, set] : given) {
    if (!set) continue;
    refuse(key,
           "got a value with router_score = \"softmax\", which has none; try router_score = "
           "\"sigmoid\" or removing the key");
  }
}

int64_t required(const std::optional<int64_t>& value, const char* key) {
  if (!value)
    refuse(key, fmt::format("got none, expected a value with family moe; try {} = …", key));
  return *value;
}

}  // namespace

void read_moe_fields(ModelSpec& spec, const ModelConfig& config) {
  MoeSpec& moe = spec.moe;
  moe.num_experts = required(config.num_experts, "num_experts");
  moe.top_k = required(config.num_experts_per_tok, "num_experts_per_tok");
  moe.width = config.moe_intermediate_size.value_or(spec.intermediate_size);
  moe.shared = config.num_shared_experts.value_or(0);
  moe.score = config.router_score.value_or("softmax");
  // A weight that is divided by itself teaches the router nothing.
  moe.normalize = config.norm_topk_prob.value_or(moe.top_k > 1);
  if (moe.score == "softmax") refuse_with_softmax(config);
  moe.scale = config.routed_scaling_factor.value_or(1.0);
  moe.groups = config.n_group.value_or(1);
  moe.top_groups = config.topk_group.value_or(moe.groups);
  moe.aux_coef = moe.score == "sigmoid" ? 0.0 : kAuxCoefficient;
  moe.bias_rate = moe.score == "sigmoid" ? kBiasRate : 0.0;
  const int64_t dense = config.first_k_dense_replace.value_or(0);
  if (dense > 0) required(config.intermediate_size, "intermediate_size");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) moe.sparse.push_back(layer >= dense);
  spec.gated = config.gated_mlp.value_or(true);
  spec.model_type = model_type_of(spec, config);
}

void apply_moe_training(ModelSpec& spec, const ModelConfig& config) {
  MoeSpec& moe = spec.moe;
  const auto take = [&](const char* key, const std::optional<double>& given, double& value,
                        bool applies, const char* expected) {
    if (!given) return;
    if (!applies) {
      refuse(key, fmt::format("got {} for a model of type {}, expected {}; try removing the key",
                              *given, spec.model_type, expected));
    }
    value = *given;
  };
  const bool experts = moe.num_experts > 0;
  take("router_aux_loss_coef", config.router_aux_loss_coef, moe.aux_coef, experts, "experts");
  take("router_z_loss_coef", config.router_z_loss_coef, moe.z_coef, experts, "experts");
  take("capacity_factor", config.capacity_factor, moe.capacity_factor, experts, "experts");
  take("router_bias_rate", config.router_bias_rate, moe.bias_rate, experts && moe.selection_bias(),
       "experts with sigmoid scores");
}

void check_moe(const ModelSpec& spec, const std::string& where) {
  const MoeSpec& moe = spec.moe;
  if (spec.family != Family::moe) return;
  constexpr int64_t kLimit = int64_t{1} << 31;
  const auto require = [&](bool good, const std::string& text) {
    if (!good) throw UsageError(where, text);
  };
  require(moe.num_experts >= 1 && moe.num_experts < 65536,
          fmt::format("number of experts: got {}, expected 1 to 65535", moe.num_experts));
  require(moe.width >= 1 && moe.width < kLimit && moe.shared >= 0 &&
              moe.width * std::max<int64_t>(1, moe.shared) < kLimit,
          fmt::format("got {} shared experts of width {}, expected 1 to {} in all", moe.shared,
                      moe.width, kLimit - 1));
  require(
      moe.groups >= 1 && moe.num_experts % moe.groups == 0,
      fmt::format("got {} experts in {} groups, expected a multiple", moe.num_experts, moe.groups));
  require(moe.top_groups >= 1 && moe.top_groups <= moe.groups,
          fmt::format("got {} of {} groups per token, expected 1 to {}", moe.top_groups, moe.groups,
                      moe.groups));
  const int64_t reachable = moe.num_experts / moe.groups * moe.top_groups;
  require(moe.top_k >= 1 && moe.top_k <= reachable,
          fmt::format("got {} experts per token, expected 1 to {} ({} experts, {} of {} groups)",
                      moe.top_k, reachable, moe.num_experts, moe.top_groups, moe.groups));
  require(count_sparse_layers(spec) > 0, "got no layer with experts, expected at least one");
}

}  // namespace weft
