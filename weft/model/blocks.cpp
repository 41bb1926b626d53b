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

}  // namespace weft
