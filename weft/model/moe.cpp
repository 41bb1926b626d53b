// Experts in place of a dense MLP: a router, the gated MLPs of the experts on the rows of their
// tokens, and shared experts that see every token. Weights of all experts of a layer are stacked;
// docs/moe.md.
#include <algorithm>
#include <cmath>

#include "weft/model/blocks.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

std::string module_name(int64_t layer) { return "model.layers." + std::to_string(layer) + ".mlp"; }

struct Routing {
  ValueId weights = kNoValue;  // [B,S,K]
  ValueId slots = kNoValue;    // [B,S,K]
  ValueId counts = kNoValue;   // [B,E]
};

Routing route(ForwardContext& context, ValueId x, int64_t layer, int64_t capacity) {
  const MoeSpec& moe = context.spec.moe;
  const std::string module = router_module(layer);
  Attrs attrs = {{"top_k", moe.top_k},  {"score", moe.score},   {"normalize", moe.normalize},
                 {"scale", moe.scale},  {"capacity", capacity}, {"balance", moe.aux_coef},
                 {"z_loss", moe.z_coef}};
  if (moe.groups > 1) {
    attrs.set("groups", moe.groups);
    attrs.set("top_groups", moe.top_groups);
  }
  const ValueId bias =
      moe.selection_bias() ? context.states.weight(module + ".e_score_correction_bias") : kNoValue;
  context.graph.set_scope(module);
  const std::vector<ValueId> out =
      context.graph.add_node(OpKind::router,
                             {x, context.states.weight(module + ".weight"), context.inputs.lengths,
                              bias, context.inputs.aux_scale},
                             attrs);
  context.router_stats.emplace(layer, out[5]);
  return {out[1], out[2], out[4]};
}

}  // namespace

std::string router_module(int64_t layer) { return module_name(layer) + ".gate"; }

ValueId moe_branch(ForwardContext& context, ValueId x, int64_t layer) {
  Graph& graph = context.graph;
  const MoeSpec& moe = context.spec.moe;
  const int64_t capacity = expert_capacity(moe, graph.type(x).shape[1]);
  const Routing routing = route(context, x, layer, capacity);
  const std::string module = module_name(layer);
  const std::string experts = module + ".experts";
  graph.set_scope(experts);
  const ValueId rows = graph.add(OpKind::dispatch, {x, routing.slots, routing.counts, kNoValue},
                                 {{"capacity", capacity}});
  // Stands here so that tokens can travel meanwhile.
  const ValueId shared =
      moe.shared > 0 ? llama_mlp(context, x, module + ".shared_experts") : kNoValue;
  const auto matmul = [&](ValueId of, const std::string& name) {
    graph.set_scope(experts + name);
    return graph.add(OpKind::grouped_matmul,
                     {of, context.states.weight(experts + name + ".weight"), routing.counts},
                     {{"transpose_w", true}});
  };
  const ValueId gate = context.spec.gated ? matmul(rows, ".gate_proj") : kNoValue;
  const ValueId up = matmul(rows, ".up_proj");
  graph.set_scope(experts + ".act_fn");
  const ValueId inner =
      graph.add(OpKind::expert_glu,
                {gate == kNoValue ? up : gate, gate == kNoValue ? kNoValue : up, routing.counts},
                {{"kind", context.spec.activation}});
  const ValueId down = matmul(inner, ".down_proj");
  graph.set_scope(experts);
  const ValueId y =
      graph.add(OpKind::combine, {down, routing.slots, routing.counts, routing.weights, kNoValue},
                {{"capacity", capacity}});
  if (shared == kNoValue) return y;
  graph.set_scope(module);
  return graph.add(OpKind::add, {shared, y});
}

void add_moe_parameters(const ModelSpec& spec, int64_t layer, std::vector<ParamSpec>& parameters) {
  const MoeSpec& moe = spec.moe;
  const int64_t E = moe.num_experts, H = spec.hidden_size, I = moe.width;
  const std::string module = module_name(layer);
  const std::string router = router_module(layer);
  parameters.push_back(matrix_parameter(router + ".weight", E, H));
  parameters.back().wide = true;
  if (moe.selection_bias()) {
    parameters.push_back(vector_parameter(router + ".e_score_correction_bias", E, "zeros"));
    parameters.back().trained = false;
  }
  const auto stacked = [&](const char* name, const char* file, int64_t out, int64_t in,
                           int64_t file_out, int64_t begin) {
    const std::string experts = module + ".experts.";
    parameters.push_back({.name = experts + name + ".weight",
                          .hf_name = experts + file,
                          .shape = {E, out, in},
                          .hf_shape = {E, file_out, in},
                          .hf_begin = {0, begin, 0},
                          .init = "normal",
                          .decay = true});
  };
  if (spec.gated) {
    stacked("gate_proj", "gate_up_proj", I, H, 2 * I, 0);
    stacked("up_proj", "gate_up_proj", I, H, 2 * I, I);
  } else {
    stacked("up_proj", "up_proj", I, H, I, 0);
  }
  stacked("down_proj", "down_proj", H, I, H, 0);
  if (moe.shared > 0) {
    add_llama_mlp(spec, module + ".shared_experts", moe.shared * I, parameters);
  }
}

bool is_sparse(const ModelSpec& spec, int64_t layer) {
  return layer < static_cast<int64_t>(spec.moe.sparse.size()) &&
         spec.moe.sparse[static_cast<size_t>(layer)];
}

int64_t count_sparse_layers(const ModelSpec& spec) {
  return std::count(spec.moe.sparse.begin(), spec.moe.sparse.end(), true);
}

double aux_share(const ModelSpec& spec, int64_t sequences) {
  const int64_t layers = count_sparse_layers(spec);
  return layers == 0 ? 0.0 : 1.0 / static_cast<double>(sequences * layers);
}

int64_t expert_capacity(const MoeSpec& moe, int64_t seq_len) {
  if (moe.capacity_factor == 0.0) return 0;
  const double even =
      static_cast<double>(seq_len * moe.top_k) / static_cast<double>(moe.num_experts);
  // The small term keeps 10 x 1.1 from becoming 12.
  const auto rows = static_cast<int64_t>(std::ceil(even * moe.capacity_factor - 1e-9));
  return std::clamp<int64_t>(rows, 1, seq_len);
}

}  // namespace weft
