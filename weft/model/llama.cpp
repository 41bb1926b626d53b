// Llama family (llama, mistral, qwen2, qwen3): RMS norm, rotary positions, grouped heads, gated
// MLP. Qwen2 adds biases on q, k, v; Qwen3 normalises q and k per head before the rotation. Family
// moe is the same with experts in place of some MLPs (moe.cpp).
#include <cmath>

#include "weft/model/blocks.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

std::string layer_name(int64_t layer) { return "model.layers." + std::to_string(layer); }

ValueId rotate(ForwardContext& context, ValueId x, ValueId table, const std::string& scope) {
  context.graph.set_scope(scope);
  return context.graph.add(OpKind::rope, {x, table}, {{"head_dim", context.spec.head_dim}});
}

ValueId attention_branch(ForwardContext& context, ValueId x, int64_t layer, ValueId table) {
  const ModelSpec& spec = context.spec;
  const std::string module = layer_name(layer) + ".self_attn";
  ValueId q = linear(context, x, module + ".q_proj");
  ValueId k = linear(context, x, module + ".k_proj");
  const ValueId v = linear(context, x, module + ".v_proj");
  if (spec.qk_norm) {
    q = rms_norm(context, q, module + ".q_norm");
    k = rms_norm(context, k, module + ".k_norm");
  }
  q = rotate(context, q, table, module + ".q_rope");
  k = rotate(context, k, table, module + ".k_rope");
  context.graph.set_scope(module);
  const ValueId o =
      attention(context, q, k, v, layer, 1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  return linear(context, o, module + ".o_proj");
}

ValueId mlp_branch(ForwardContext& context, ValueId x, int64_t layer) {
  if (is_sparse(context.spec, layer)) return moe_branch(context, x, layer);
  return llama_mlp(context, x, layer_name(layer) + ".mlp");
}

ValueId rope_table(ForwardContext& context) {
  const ModelSpec& spec = context.spec;
  Attrs attrs = {{"head_dim", spec.head_dim}, {"theta", spec.rope.theta}, {"type", spec.rope.type}};
  if (spec.rope.type != "default") attrs.set("factor", spec.rope.factor);
  if (spec.rope.type == "llama3") {
    attrs.set("low_freq_factor", spec.rope.low_freq_factor);
    attrs.set("high_freq_factor", spec.rope.high_freq_factor);
    attrs.set("original_max_position", spec.rope.original_max_position);
  }
  if (context.compute == DType::f64) attrs.set("wide", true);
  context.graph.set_scope("model.rotary_emb");
  return context.graph.add(OpKind::rope_table, {context.inputs.positions}, attrs);
}

}  // namespace

ValueId llama_hidden(ForwardContext& context) {
  const ValueId table = rope_table(context);
  context.graph.set_scope("model.embed_tokens");
  ValueId x = dropout(
      context,
      context.graph.add(OpKind::embedding, {context.inputs.tokens,
                                            context.states.weight("model.embed_tokens.weight")}));
  for (int64_t layer = 0; layer < context.spec.num_layers; ++layer) {
    const std::string name = layer_name(layer);
    const ValueId normed = rms_norm(context, x, name + ".input_layernorm");
    x = residual_add(context, x, attention_branch(context, normed, layer, table));
    x = residual_add(
        context, x,
        mlp_branch(context, rms_norm(context, x, name + ".post_attention_layernorm"), layer));
  }
  return rms_norm(context, x, "model.norm");
}

std::vector<ParamSpec> llama_parameters(const ModelSpec& spec) {
  const int64_t width = spec.hidden_size;
  std::vector<ParamSpec> parameters = {
      matrix_parameter("model.embed_tokens.weight", spec.vocab_size, width)};
  const auto norm = [&](const std::string& name, int64_t size) {
    parameters.push_back(vector_parameter(name + ".weight", size, "ones"));
  };
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const std::string name = layer_name(layer);
    const std::string attn = name + ".self_attn";
    norm(name + ".input_layernorm", width);
    add_projection(parameters, attn + ".q_proj", spec.num_heads * spec.head_dim, width,
                   spec.qkv_bias);
    add_projection(parameters, attn + ".k_proj", spec.num_kv_heads * spec.head_dim, width,
                   spec.qkv_bias);
    add_projection(parameters, attn + ".v_proj", spec.num_kv_heads * spec.head_dim, width,
                   spec.qkv_bias);
    add_projection(parameters, attn + ".o_proj", width, spec.num_heads * spec.head_dim,
                   spec.o_bias);
    if (spec.qk_norm) {
      norm(attn + ".q_norm", spec.head_dim);
      norm(attn + ".k_norm", spec.head_dim);
    }
    norm(name + ".post_attention_layernorm", width);
    if (is_sparse(spec, layer)) {
      add_moe_parameters(spec, layer, parameters);
    } else {
      add_llama_mlp(spec, name + ".mlp", spec.intermediate_size, parameters);
    }
  }
  norm("model.norm", width);
  if (!spec.tied) parameters.push_back(matrix_parameter("lm_head.weight", spec.vocab_size, width));
  return parameters;
}

}  // namespace weft
