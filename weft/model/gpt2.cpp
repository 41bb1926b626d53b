// GPT-2: learned positions, layer norm, Conv1D weights [in,out], tanh-GELU. The fused c_attn tensor
// [C,3C] is three parameters (#q, #k, #v), each a column piece of it.
#include <cmath>

#include "weft/model/blocks.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

constexpr const char* kPieces[] = {"#q", "#k", "#v"};

std::string layer_name(int64_t layer) { return "transformer.h." + std::to_string(layer); }

ValueId attention_branch(ForwardContext& context, ValueId x, int64_t layer) {
  const ModelSpec& spec = context.spec;
  const std::string module = layer_name(layer) + ".attn";
  const ValueId q = linear(context, x, module + ".c_attn", false, "#q");
  const ValueId k = linear(context, x, module + ".c_attn", false, "#k");
  const ValueId v = linear(context, x, module + ".c_attn", false, "#v");
  double scale = spec.scale_attention ? 1.0 / std::sqrt(static_cast<double>(spec.head_dim)) : 1.0;
  if (spec.scale_by_layer) scale /= static_cast<double>(layer + 1);
  context.graph.set_scope(module);
  const ValueId o = attention(context, q, k, v, layer, scale);
  return linear(context, o, module + ".c_proj", false);
}

ValueId mlp_branch(ForwardContext& context, ValueId x, int64_t layer) {
  const std::string module = layer_name(layer) + ".mlp";
  const ValueId up = linear(context, x, module + ".c_fc", false);
  context.graph.set_scope(module + ".act");
  const ValueId act =
      context.graph.add(OpKind::activation, {up}, {{"kind", context.spec.activation}});
  return linear(context, act, module + ".c_proj", false);
}

}  // namespace

ValueId gpt2_hidden(ForwardContext& context) {
  Graph& graph = context.graph;
  graph.set_scope("transformer.wte");
  const ValueId tokens = graph.add(
      OpKind::embedding, {context.inputs.tokens, context.states.weight("transformer.wte.weight")});
  graph.set_scope("transformer.wpe");
  const ValueId positions =
      graph.add(OpKind::embedding,
                {context.inputs.positions, context.states.weight("transformer.wpe.weight")});
  ValueId x = dropout(context, graph.add(OpKind::add, {tokens, positions}));
  for (int64_t layer = 0; layer < context.spec.num_layers; ++layer) {
    const std::string name = layer_name(layer);
    x = residual_add(context, x,
                     attention_branch(context, layer_norm(context, x, name + ".ln_1"), layer));
    x = residual_add(context, x,
                     mlp_branch(context, layer_norm(context, x, name + ".ln_2"), layer));
  }
  return layer_norm(context, x, "transformer.ln_f");
}

std::vector<ParamSpec> gpt2_parameters(const ModelSpec& spec) {
  const int64_t width = spec.hidden_size;
  std::vector<ParamSpec> parameters = {
      matrix_parameter("transformer.wte.weight", spec.vocab_size, width),
      matrix_parameter("transformer.wpe.weight", spec.max_positions, width)};
  const auto norm = [&](const std::string& name) {
    parameters.push_back(vector_parameter(name + ".weight", width, "ones"));
    parameters.push_back(vector_parameter(name + ".bias", width, "zeros"));
  };
  const auto conv = [&](const std::string& name, int64_t in, int64_t out) {
    parameters.push_back(matrix_parameter(name + ".weight", in, out));
    parameters.push_back(vector_parameter(name + ".bias", out, "zeros"));
  };
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const std::string name = layer_name(layer);
    norm(name + ".ln_1");
    const std::string fused = name + ".attn.c_attn";
    for (int64_t i = 0; i < 3; ++i) {
      parameters.push_back({fused + ".weight" + kPieces[i],
                            fused + ".weight",
                            {width, width},
                            {width, 3 * width},
                            {0, i * width},
                            "normal",
                            true});
    }
    for (int64_t i = 0; i < 3; ++i) {
      parameters.push_back({fused + ".bias" + kPieces[i],
                            fused + ".bias",
                            {width},
                            {3 * width},
                            {i * width},
                            "zeros",
                            false});
    }
    conv(name + ".attn.c_proj", width, width);
    norm(name + ".ln_2");
    conv(name + ".mlp.c_fc", width, spec.intermediate_size);
    conv(name + ".mlp.c_proj", spec.intermediate_size, width);
  }
  norm("transformer.ln_f");
  if (!spec.tied) parameters.push_back(matrix_parameter("lm_head.weight", spec.vocab_size, width));
  return parameters;
}

}  // namespace weft
