#include "weft/model/model_graph.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/model/blocks.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

/// Logits in flight at a time in the fused loss: enough rows for an efficient matmul.
constexpr int64_t kLogitsChunkBytes = int64_t{96} << 20;

DType parameter_dtype(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

StateInit init_of(const ParamSpec& parameter, const ModelSpec& spec) {
  StateInit init;
  if (parameter.init == "normal") {
    init.kind = StateInit::Kind::normal;
    init.stddev = spec.initializer_range;
  } else {
    init.kind = parameter.init == "ones" ? StateInit::Kind::ones : StateInit::Kind::zeros;
  }
  return init;
}

/// Rows of the whole micro-batch whose logits exist at a time.
int64_t chunk_rows(const ForwardContext& context, ValueId labels) {
  const int64_t rows = context.graph.type(labels).elements();
  const int64_t fitting = kLogitsChunkBytes / (context.spec.vocab_size * 4) / 64 * 64;
  return std::clamp<int64_t>(std::max<int64_t>(fitting, 64) * context.loss_ways, 1,
                             std::max<int64_t>(rows, 1));
}

}  // namespace

ModelStates::ModelStates(Graph& graph, const ModelSpec& spec, DType compute, bool train,
                         bool all_masters) {
  const DType wide = parameter_dtype(compute);
  for (ParamSpec& parameter : model_parameters(spec)) {
    State state;
    state.name = parameter.name;
    const bool narrow = parameter.shape.size() >= 2 && !parameter.wide;
    state.type = {narrow ? compute : wide, parameter.shape};
    state.init = init_of(parameter, spec);
    state.logical = {parameter.hf_name, parameter.hf_shape, parameter.hf_begin};
    state.decay = parameter.decay;
    state.pinned = !parameter.trained;
    Entry entry;
    const bool with_master =
        train && parameter.trained && (all_masters || state.type.dtype != wide);
    if (with_master) {
      State master = state;
      master.name += "@master";
      master.role = StateRole::master;
      master.type.dtype = wide;
      state.init = {StateInit::Kind::copy, 0.0, master.name};
      entry.master = graph.add_state(std::move(master));
    }
    entry.weight = graph.add_state(std::move(state));
    index_[parameter.name] = entries_.size();
    entry.spec = std::move(parameter);
    entries_.push_back(std::move(entry));
  }
}

ValueId ModelStates::weight(const std::string& name) const {
  const auto at = index_.find(name);
  WEFT_CHECK(at != index_.end(), "model", "no parameter {}", name);
  return entries_[at->second].weight;
}

std::string head_parameter(const ModelSpec& spec) {
  if (!spec.tied) return "lm_head.weight";
  return spec.family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

ValueId build_hidden(ForwardContext& context) {
  switch (context.spec.family) {
    case Family::gpt2: return gpt2_hidden(context);
    case Family::llama:
    case Family::moe: return llama_hidden(context);
  }
  throw BugError("model", "unknown family");
}

ValueId build_eval_loss(ForwardContext& context, ValueId labels) {
  const ValueId hidden = build_hidden(context);
  context.graph.set_scope("lm_head");
  return context.graph.add(OpKind::linear_cross_entropy,
                           {hidden, context.states.weight(head_parameter(context.spec)), labels},
                           {{"transpose_w", true}, {"chunk_rows", chunk_rows(context, labels)}});
}

ValueId build_train_loss(ForwardContext& context, ValueId labels, ValueId scale) {
  const ValueId hidden = build_hidden(context);
  context.graph.set_scope("lm_head");
  return context.graph.add_node(
      OpKind::linear_cross_entropy_train,
      {hidden, context.states.weight(head_parameter(context.spec)), labels, scale, kNoValue},
      {{"transpose_w", true}, {"chunk_rows", chunk_rows(context, labels)}})[0];
}

ValueId build_logits(ForwardContext& context, ValueId last) {
  ValueId hidden = build_hidden(context);
  context.graph.set_scope("lm_head");
  if (last != kNoValue) hidden = context.graph.add(OpKind::select_rows, {hidden, last});
  return context.graph.add(
      OpKind::matmul,
      {hidden, context.states.weight(head_parameter(context.spec)), kNoValue, kNoValue},
      {{"transpose_w", true}});
}

}  // namespace weft
