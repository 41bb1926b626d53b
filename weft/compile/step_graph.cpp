#include "weft/compile/step_graph.h"

#include <fmt/core.h>

#include "weft/autodiff/backward.h"
#include "weft/base/check.h"
#include "weft/model/blocks.h"
#include "weft/model/model_graph.h"
#include "weft/ops/op_kind.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

DType parameter_dtype(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

bool separates_documents(const Config& config) { return config.data.reset_attention; }

MicroInputs add_micro_inputs(Graph& graph, const Config& config, const ModelSpec& spec,
                             int64_t batch, int64_t seq_len, const std::string& suffix) {
  MicroInputs inputs;
  const TensorType ids{DType::i32, {batch, seq_len}};
  inputs.tokens = graph.add_input("tokens" + suffix, ids, true);
  inputs.positions = graph.add_input("positions" + suffix, ids, true);
  if (separates_documents(config)) {
    inputs.segments = graph.add_input("segments" + suffix, ids, true);
  }
  if (spec.family == Family::moe) {
    inputs.lengths = graph.add_input("lengths" + suffix, {DType::i32, {batch}}, true);
  }
  return inputs;
}

/// Forward and backward of all micro-batches; gradients are summed across them.
class StepBuilder {
 public:
  StepBuilder(const Config& config, const ModelSpec& spec)
      : config_(config),
        spec_(spec),
        compute_(compute_dtype(config)),
        wide_(parameter_dtype(compute_)),
        states_(graph_, spec, compute_, true, config.parallel.zero > 0) {
    grad_scale_ = graph_.add_input("grad_scale", {wide_, {1}});
    update_.inv_scale = graph_.add_input("inv_scale", {wide_, {1}});
    update_.hyper = graph_.add_input("hyper", {wide_, {3}});
    if (rounds_moments(config.optimizer)) {
      update_.step = graph_.add_input("update_step", {DType::i64, {1}});
    }
    if (spec.dropout > 0) step_ = graph_.add_input("step", {DType::i64, {1}});
    if (spec.moe.aux_coef > 0 || spec.moe.z_coef > 0) {
      aux_scale_ = graph_.add_input("aux_scale", {wide_, {1}});
    }
    for (const auto& entry : states_.entries()) {
      if (entry.spec.trained) weights_.push_back(entry.weight);
    }
  }

  Graph build(bool keep_gradients) {
    for (int32_t micro = 0; micro < config_.train.accumulation; ++micro) add_micro(micro);
    add_update(keep_gradients);
    for (const auto& [layer, stats] : router_stats_) {
      graph_.set_output(router_stats_output(layer), stats);
    }
    return std::move(graph_);
  }

 private:
  void add_micro(int32_t micro) {
    const int64_t batch = config_.train.micro_batch * config_.parallel.data;
    const int64_t seq_len = config_.data.seq_len;
    const std::string suffix = fmt::format(".{}", micro);
    graph_.set_micro(micro);
    graph_.set_phase(Phase::forward);
    MicroInputs inputs = add_micro_inputs(graph_, config_, spec_, batch, seq_len, suffix);
    const ValueId labels =
        graph_.add_input("labels" + suffix, {DType::i32, {batch, seq_len}}, true);
    if (spec_.dropout > 0) {
      inputs.step = step_;
      inputs.samples = graph_.add_input("samples" + suffix, {DType::i64, {batch}}, true);
    }
    inputs.aux_scale = aux_scale_;
    const NodeId first = graph_.num_nodes();
    ForwardContext context{.graph = graph_,
                           .spec = spec_,
                           .states = states_,
                           .inputs = inputs,
                           .compute = compute_,
                           .seed = config_.seed,
                           .dropout = true,
                           .loss_ways = config_.parallel.data * config_.parallel.op};
    const ValueId loss = build_train_loss(context, labels, grad_scale_);
    graph_.set_output("loss" + suffix, loss);
    add_router_stats(context.router_stats);
    gradients_ = backward(graph_, first, loss, grad_scale_, weights_, gradients_);
  }

  /// Sums them over the sequences and the micro-batches.
  void add_router_stats(const std::map<int64_t, ValueId>& stats) {
    for (const auto& [layer, rows] : stats) {
      graph_.set_scope(router_module(layer));
      const ValueId part = graph_.add(OpKind::bias_grad, {rows, kNoValue});
      const auto [sum, first] = router_stats_.try_emplace(layer, part);
      if (!first) sum->second = graph_.add(OpKind::add, {sum->second, part});
    }
  }

  /// Balancing without a loss: the selection biases move by the load of the whole step.
  void add_bias_updates(ValueId apply) {
    if (spec_.moe.bias_rate == 0.0) return;
    for (const auto& [layer, stats] : router_stats_) {
      const std::string state = router_module(layer) + ".e_score_correction_bias";
      const ValueId bias = states_.weight(state);
      graph_.set_scope(router_module(layer));
      const ValueId next = graph_.add(OpKind::router_bias_update, {bias, stats, apply},
                                      {{"rate", spec_.moe.bias_rate}});
      graph_.value(next).memory_class = graph_.value(bias).memory_class;
      graph_.set_state_result(state, next);
    }
  }

  void add_update(bool keep_gradients) {
    std::vector<UpdateTarget> targets;
    for (const auto& entry : states_.entries()) {
      if (!entry.spec.trained) continue;
      const auto gradient = gradients_.find(entry.weight);
      WEFT_CHECK(gradient != gradients_.end(), "compile", "parameter {} gets no gradient",
                 entry.spec.name);
      UpdateTarget target;
      target.gradient = gradient->second;
      target.state = entry.spec.name;
      if (entry.master != kNoValue) {
        target.copy_state = entry.spec.name;
        target.state += "@master";
      }
      if (keep_gradients) graph_.set_output(entry.spec.name + "@grad", target.gradient);
      targets.push_back(std::move(target));
    }
    const UpdateOutputs outputs = build_update(graph_, config_, targets, update_);
    add_bias_updates(outputs.apply);
    graph_.set_output("norm", outputs.norm);
    graph_.set_output("apply", outputs.apply);
  }

  const Config& config_;
  const ModelSpec& spec_;
  DType compute_;
  DType wide_;
  Graph graph_;
  ModelStates states_;
  ValueId grad_scale_ = kNoValue;
  ValueId step_ = kNoValue;
  UpdateInputs update_;
  std::vector<ValueId> weights_;
  std::map<ValueId, ValueId> gradients_;
  ValueId aux_scale_ = kNoValue;
  std::map<int64_t, ValueId> router_stats_;  // by layer, [E+4]
};

}  // namespace

std::string router_stats_output(int64_t layer) { return fmt::format("router_stats.{}", layer); }

DType compute_dtype(const Config& config) {
  const auto dtype = parse_dtype(config.precision.compute);
  WEFT_CHECK(dtype.has_value(), "compile", "unknown precision {}", config.precision.compute);
  return *dtype;
}

Graph build_step_graph(const Config& config, const ModelSpec& spec, bool keep_gradients) {
  return StepBuilder(config, spec).build(keep_gradients);
}

Graph build_eval_graph(const Config& config, const ModelSpec& spec) {
  Graph graph;
  const DType compute = compute_dtype(config);
  const ModelStates states(graph, spec, compute, false);
  const int64_t rows =
      config.train.eval_batch > 0 ? config.train.eval_batch : config.train.micro_batch;
  const int64_t batch = rows * config.parallel.data;
  const MicroInputs inputs = add_micro_inputs(graph, config, spec, batch, config.data.seq_len, "");
  const ValueId labels =
      graph.add_input("labels", {DType::i32, {batch, config.data.seq_len}}, true);
  ForwardContext context{.graph = graph,
                         .spec = spec,
                         .states = states,
                         .inputs = inputs,
                         .compute = compute,
                         .loss_ways = config.parallel.data * config.parallel.op};
  graph.set_output("loss", build_eval_loss(context, labels));
  return graph;
}

Graph build_logits_graph(const Config& config, const ModelSpec& spec, int64_t seq_len,
                         bool all_positions) {
  Graph graph;
  const DType compute = compute_dtype(config);
  const ModelStates states(graph, spec, compute, false);
  MicroInputs inputs;
  const int64_t batch = all_positions ? config.train.micro_batch : 1;
  const TensorType ids{DType::i32, {batch, seq_len}};
  inputs.tokens = graph.add_input("tokens", ids);
  inputs.positions = graph.add_input("positions", ids);
  if (spec.family == Family::moe) {
    inputs.lengths = graph.add_input("lengths", {DType::i32, {batch}});
  }
  const ValueId last = all_positions ? kNoValue : graph.add_input("last", {DType::i32, {1}});
  ForwardContext context{
      .graph = graph, .spec = spec, .states = states, .inputs = inputs, .compute = compute};
  graph.set_output("logits", build_logits(context, last));
  return graph;
}

}  // namespace weft
