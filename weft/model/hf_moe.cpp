#include "weft/model/hf_moe.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "weft/base/check.h"

namespace weft {
namespace {

const std::map<std::string, const char*>& architectures() {
  static const std::map<std::string, const char*> table = {{"mixtral", "MixtralForCausalLM"},
                                                           {"qwen3_moe", "Qwen3MoeForCausalLM"},
                                                           {"deepseek", "DeepseekForCausalLM"},
                                                           {"dots1", "Dots1ForCausalLM"}};
  return table;
}

/// Three libraries, three names.
int64_t read_num_experts(const HfFields& f, int64_t otherwise) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (f.find(key) != nullptr) return f.integer(key);
  }
  return otherwise > 0 ? otherwise : f.integer("n_routed_experts");
}

void refuse_unless(bool good, const HfFields& f, const char* key, const char* expected) {
  if (!good) f.wrong(key, expected);
}

void read_mixtral(ModelSpec& spec, const HfFields& f) {
  MoeSpec& moe = spec.moe;
  moe.num_experts = read_num_experts(f, 8);
  moe.top_k = f.integer("num_experts_per_tok", 2);
  moe.width = spec.intermediate_size;
  moe.aux_coef = f.number("router_aux_loss_coef", 1e-3);
  refuse_unless(f.number("router_jitter_noise", 0.0) == 0.0, f, "router_jitter_noise",
                "0: noise on the router is not supported");
  moe.sparse.assign(static_cast<size_t>(spec.num_layers), true);
}

void read_qwen3(ModelSpec& spec, const HfFields& f) {
  MoeSpec& moe = spec.moe;
  moe.num_experts = read_num_experts(f, 128);
  moe.top_k = f.integer("num_experts_per_tok", 8);
  moe.width = f.integer("moe_intermediate_size", 768);
  moe.normalize = f.boolean("norm_topk_prob", false);
  moe.aux_coef = f.number("router_aux_loss_coef", 1e-3);
  const int64_t step = f.integer("decoder_sparse_step", 1);
  refuse_unless(step >= 1, f, "decoder_sparse_step", "1 or more");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    moe.sparse.push_back((layer + 1) % step == 0);
  }
  const Json* dense = f.find("mlp_only_layers");
  if (dense == nullptr) return;
  refuse_unless(dense->is_array(), f, "mlp_only_layers", "a list of layers");
  for (const Json& layer : dense->as_array()) {
    refuse_unless(layer.is_int() && layer.as_int() >= 0 && layer.as_int() < spec.num_layers, f,
                  "mlp_only_layers", "layers of the model");
    moe.sparse[static_cast<size_t>(layer.as_int())] = false;
  }
}

/// What deepseek and dots1, which follows DeepSeek-V3, have in common.
void read_deepseek(ModelSpec& spec, const HfFields& f, double aux) {
  MoeSpec& moe = spec.moe;
  moe.num_experts = read_num_experts(f, 0);
  moe.top_k = f.integer("num_experts_per_tok");
  moe.width = f.integer("moe_intermediate_size", 1408);
  moe.shared = f.integer("n_shared_experts", 0);
  moe.normalize = f.boolean("norm_topk_prob", false);
  moe.aux_coef = f.number("aux_loss_alpha", aux);
  const int64_t first = f.integer("first_k_dense_replace", 0);
  const int64_t step = f.integer("moe_layer_freq", 1);
  refuse_unless(step >= 1, f, "moe_layer_freq", "1 or more");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    moe.sparse.push_back(layer >= first && layer % step == 0);
  }
}

void read_deepseek_v1(ModelSpec& spec, const HfFields& f) {
  refuse_unless(f.text("scoring_func", "softmax") == "softmax", f, "scoring_func", "softmax");
  refuse_unless(f.text("topk_method", "greedy") == "greedy", f, "topk_method", "greedy");
  refuse_unless(f.find("kv_lora_rank") == nullptr, f, "kv_lora_rank",
                "none: latent attention (MLA) is not supported");
  refuse_unless(f.number("routed_scaling_factor", 1.0) == 1.0, f, "routed_scaling_factor", "1");
  read_deepseek(spec, f, 1e-3);
}

void read_dots1(ModelSpec& spec, const HfFields& f) {
  const std::string score = f.text("scoring_func", "sigmoid");
  refuse_unless(score == "sigmoid" || score == "noaux_tc", f, "scoring_func", "sigmoid");
  read_deepseek(spec, f, 0.0);
  MoeSpec& moe = spec.moe;
  moe.score = "sigmoid";
  moe.scale = f.number("routed_scaling_factor", 1.0);
  moe.groups = f.integer("n_group", 1);
  moe.top_groups = f.integer("topk_group", 1);
}

int64_t first_sparse(const MoeSpec& moe) {
  return std::distance(moe.sparse.begin(), std::find(moe.sparse.begin(), moe.sparse.end(), true));
}

}  // namespace

bool is_moe_type(const std::string& model_type) { return architectures().contains(model_type); }

std::string moe_architecture(const std::string& model_type) {
  return architectures().at(model_type);
}

void read_moe(ModelSpec& spec, const HfFields& f, const std::string& where) {
  if (spec.num_layers < 1 || spec.num_layers >= 65536) {
    throw UsageError(where, fmt::format("got {} layers, expected 1 to 65535", spec.num_layers));
  }
  if (spec.model_type == "mixtral") read_mixtral(spec, f);
  if (spec.model_type == "qwen3_moe") read_qwen3(spec, f);
  if (spec.model_type == "deepseek") read_deepseek_v1(spec, f);
  if (spec.model_type == "dots1") read_dots1(spec, f);
}

void add_moe_json(const ModelSpec& spec, Json& json) {
  const MoeSpec& moe = spec.moe;
  const std::string& type = spec.model_type;
  json.set("num_experts_per_tok", moe.top_k);
  if (type == "mixtral") {
    json.set("intermediate_size", moe.width);
    json.set("num_local_experts", moe.num_experts);
    json.set("router_aux_loss_coef", moe.aux_coef);
    return;
  }
  json.set("moe_intermediate_size", moe.width);
  json.set("norm_topk_prob", moe.normalize);
  if (type == "qwen3_moe") {
    json.set("num_experts", moe.num_experts);
    json.set("router_aux_loss_coef", moe.aux_coef);
    json.set("decoder_sparse_step", int64_t{1});
    Json dense = Json::array();
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
      if (!is_sparse(spec, layer)) dense.push(layer);
    }
    json.set("mlp_only_layers", std::move(dense));
    return;
  }
  json.set("n_routed_experts", moe.num_experts);
  json.set("n_shared_experts", moe.shared > 0 || type == "dots1" ? Json(moe.shared) : Json());
  json.set("first_k_dense_replace", first_sparse(moe));
  json.set("moe_layer_freq", int64_t{1});
  json.set("scoring_func", moe.score);
  json.set("aux_loss_alpha", moe.aux_coef);
  json.set("seq_aux", true);
  if (type == "dots1") {
    json.set("routed_scaling_factor", moe.scale);
    json.set("n_group", moe.groups);
    json.set("topk_group", moe.top_groups);
  }
}

}  // namespace weft
