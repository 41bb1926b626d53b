#include "weft/model/blocks.h"

#include "weft/ops/op_kind.h"

namespace weft {

ValueId linear(ForwardContext& context, ValueId x, const std::string& module, bool transpose_w,
               const std::string& piece) {
  const std::string bias = module + ".bias" + piece;
  context.graph.set_scope(module + piece);
  return context.graph.add(
      OpKind::matmul,
      {x, context.states.weight(module + ".weight" + piece),
       context.states.has(bias) ? context.states.weight(bias) : kNoValue, kNoValue},
      {{"transpose_w", transpose_w}});
}

ValueId rms_norm(ForwardContext& context, ValueId x, const std::string& module) {
  context.graph.set_scope(module);
  return context.graph.add_node(OpKind::rmsnorm, {x, context.states.weight(module + ".weight")},
                                {{"eps", context.spec.norm_eps}})[0];
}

ValueId layer_norm(ForwardContext& context, ValueId x, const std::string& module) {
  context.graph.set_scope(module);
  return context.graph.add_node(
      OpKind::layernorm,
      {x, context.states.weight(module + ".weight"), context.states.weight(module + ".bias")},
      {{"eps", context.spec.norm_eps}})[0];
}

ValueId dropout(ForwardContext& context, ValueId x) {
  const int64_t site = context.next_site++;
  if (!context.dropout || context.spec.dropout == 0.0) return x;
  return context.graph.add(
      OpKind::dropout, {x, context.inputs.step, context.inputs.samples, kNoValue},
      {{"p", context.spec.dropout}, {"seed", static_cast<int64_t>(context.seed)}, {"site", site}});
}

ValueId residual_add(ForwardContext& context, ValueId x, ValueId branch) {
  return context.graph.add(OpKind::add, {x, dropout(context, branch)});
}

ValueId llama_mlp(ForwardContext& context, ValueId x, const std::string& module) {
  const bool gated = context.spec.gated;
  const ValueId gate = gated ? linear(context, x, module + ".gate_proj") : kNoValue;
  const ValueId up = linear(context, x, module + ".up_proj");
  context.graph.set_scope(module + ".act_fn");
  const Attrs kind = {{"kind", context.spec.activation}};
  const ValueId y = gated ? context.graph.add(OpKind::glu, {gate, up}, kind)
                          : context.graph.add(OpKind::activation, {up}, kind);
  return linear(context, y, module + ".down_proj");
}

ValueId attention(ForwardContext& context, ValueId q, ValueId k, ValueId v, int64_t layer,
                  double scale) {
  const ModelSpec& spec = context.spec;
  return context.graph.add_node(OpKind::attention, {q, k, v, context.inputs.segments},
                                {{"num_heads", spec.num_heads},
                                 {"num_kv_heads", spec.num_kv_heads},
                                 {"head_dim", spec.head_dim},
                                 {"scale", scale},
                                 {"window", spec.window[static_cast<size_t>(layer)]}})[0];
}

ParamSpec matrix_parameter(const std::string& name, int64_t rows, int64_t columns) {
  return {name, name, {rows, columns}, {rows, columns}, {0, 0}, "normal", true};
}

ParamSpec vector_parameter(const std::string& name, int64_t size, const std::string& init) {
  return {name, name, {size}, {size}, {0}, init, false};
}

void add_projection(std::vector<ParamSpec>& parameters, const std::string& module, int64_t out,
                    int64_t in, bool bias) {
  parameters.push_back(matrix_parameter(module + ".weight", out, in));
  if (bias) parameters.push_back(vector_parameter(module + ".bias", out, "zeros"));
}

void add_llama_mlp(const ModelSpec& spec, const std::string& module, int64_t width,
                   std::vector<ParamSpec>& parameters) {
  const int64_t hidden = spec.hidden_size;
  if (spec.gated) add_projection(parameters, module + ".gate_proj", width, hidden, spec.mlp_bias);
  add_projection(parameters, module + ".up_proj", width, hidden, spec.mlp_bias);
  add_projection(parameters, module + ".down_proj", hidden, width, spec.mlp_bias);
}

}  // namespace weft
