#include "weft/optim/optimizer.h"

#include "weft/base/check.h"
#include "weft/base/rng.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

ValueId add_slot(Graph& graph, const State& parameter, const std::string& slot, bool rounded) {
  State state;
  state.name = parameter_name(parameter.name) + "@" + slot;
  state.role = StateRole::moment;
  state.type = {rounded ? DType::bf16 : parameter.type.dtype, parameter.type.shape};
  state.logical = parameter.logical;
  state.slot = slot;
  state.decay = parameter.decay;
  return graph.add_state(std::move(state));
}

class UpdateBuilder {
 public:
  UpdateBuilder(Graph& graph, const Config& config, const UpdateInputs& inputs,
                const UpdateOutputs& outputs, ValueId factor)
      : graph_(graph),
        config_(config.optimizer),
        seed_(config.seed),
        inputs_(inputs),
        outputs_(outputs),
        factor_(factor) {}

  void update(const UpdateTarget& target) {
    const State state = *graph_.find_state(target.state);
    Attrs attrs = {{"weight_decay", state.decay ? config_.weight_decay : 0.0}};
    if (!target.copy_state.empty()) {
      const State* copy = graph_.find_state(target.copy_state);
      attrs.set("copy_dtype", std::string(dtype_name(copy->type.dtype)));
    }
    graph_.set_scope(parameter_name(target.state));
    if (config_.name == "adamw") {
      adamw(target, state, std::move(attrs));
    } else {
      sgd(target, state, std::move(attrs));
    }
  }

 private:
  void adamw(const UpdateTarget& target, const State& state, Attrs attrs) {
    attrs.set("beta1", config_.beta1);
    attrs.set("beta2", config_.beta2);
    attrs.set("eps", config_.eps);
    const bool rounded = rounds_moments(config_);
    const ValueId m = add_slot(graph_, state, "m", rounded);
    const ValueId v = add_slot(graph_, state, "v", rounded);
    std::vector<ValueId> operands = {
        state.value, m, v, target.gradient, inputs_.hyper, factor_, outputs_.apply, inputs_.step};
    if (rounded) draw_from(state, attrs);
    const auto next = graph_.add_node(OpKind::adamw, std::move(operands), std::move(attrs));
    set_result(state.name, next[0]);
    set_result(graph_.value(m).name, next[1]);
    set_result(graph_.value(v).name, next[2]);
    if (!target.copy_state.empty()) set_result(target.copy_state, next[3]);
  }

  void sgd(const UpdateTarget& target, const State& state, Attrs attrs) {
    attrs.set("momentum", config_.momentum);
    const bool rounded = rounds_moments(config_);
    const ValueId momentum =
        config_.momentum > 0 ? add_slot(graph_, state, "momentum", rounded) : kNoValue;
    std::vector<ValueId> operands = {state.value, target.gradient, momentum,    inputs_.hyper,
                                     factor_,     outputs_.apply,  inputs_.step};
    if (rounded) draw_from(state, attrs);
    const auto next = graph_.add_node(OpKind::sgd, std::move(operands), std::move(attrs));
    set_result(state.name, next[0]);
    if (momentum != kNoValue) set_result(graph_.value(momentum).name, next[1]);
    if (!target.copy_state.empty()) set_result(target.copy_state, next[2]);
  }

  /// Rounding draws from a stream of the logical tensor, by the number of the update and of the
  /// element.
  void draw_from(const State& state, Attrs& attrs) const {
    attrs.set("seed", static_cast<int64_t>(seed_));
    attrs.set("site", static_cast<int64_t>(hash_name(state.logical.name)));
  }

  void set_result(const std::string& state, ValueId value) {
    graph_.value(value).memory_class = graph_.value(graph_.find_state(state)->value).memory_class;
    graph_.set_state_result(state, value);
  }

  Graph& graph_;
  const OptimizerConfig& config_;
  uint64_t seed_;
  const UpdateInputs& inputs_;
  const UpdateOutputs& outputs_;
  ValueId factor_;
};

}  // namespace

bool rounds_moments(const OptimizerConfig& config) {
  return config.moments == "bf16" && (config.name == "adamw" || config.momentum > 0);
}

UpdateOutputs build_update(Graph& graph, const Config& config,
                           const std::vector<UpdateTarget>& targets, const UpdateInputs& inputs) {
  graph.set_phase(Phase::verdict);
  graph.set_micro(0);
  std::vector<ValueId> operands = {inputs.inv_scale};
  for (const UpdateTarget& target : targets) {
    const std::string parameter = parameter_name(target.state);
    graph.set_scope(parameter);
    operands.push_back(graph.add(OpKind::sum_squares, {target.gradient}));
    graph.set_output(kSumOutput + parameter, operands.back());
  }
  graph.set_scope("verdict");
  const auto verdict =
      graph.add_node(OpKind::verdict, operands, {{"max_norm", config.train.grad_clip}});
  const UpdateOutputs outputs = {verdict[0], verdict[2]};
  graph.set_phase(Phase::update);
  UpdateBuilder builder(graph, config, inputs, outputs, verdict[1]);
  for (const UpdateTarget& target : targets) builder.update(target);
  return outputs;
}

}  // namespace weft
