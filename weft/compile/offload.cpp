#include "weft/compile/offload.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "weft/base/check.h"
#include "weft/compile/late_update.h"
#include "weft/compile/offload_update.h"
#include "weft/compile/order_edit.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

bool updates(const Node& node) { return node.phase == Phase::update; }

Attrs to_tier(Tier tier) { return {{"tier", static_cast<int64_t>(tier)}}; }

ValueId load(Graph& graph, const Node& near, ValueId value, Tier tier, MemoryClass memory_class) {
  graph.set_scope(near.scope);
  graph.set_phase(near.phase);
  graph.set_micro(near.micro);
  const ValueId moved = graph.add(OpKind::load, {value}, to_tier(tier));
  graph.value(moved).memory_class = memory_class;
  return moved;
}

/// What lives elsewhere and is read on the device, weights above all, is loaded for each pass of
/// each micro-batch.
class DeviceLoads {
 public:
  DeviceLoads(Graph& graph, OrderEdit& order, const TierChoice& choice)
      : graph_(graph), order_(order), ahead_(choice.loads_ahead), shared_(choice.vertical) {}

  void run() {
    const NodeId count = graph_.num_nodes();
    for (NodeId id = 0; id < count; ++id) {
      const Node& node = graph_.node(id);
      if (!node.on_host && !op_def(node.op).transfer) visit(id);
    }
    order_.move_ahead(made_, ahead_);
  }

 private:
  void visit(NodeId id) {
    const Node node = graph_.node(id);  // a copy: adding nodes moves the list
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId value = node.inputs[i];
      if (value == kNoValue || graph_.value(value).tier == Tier::device) continue;
      // In vertical order the micro-batches of a layer follow each other and share its weights.
      const bool shared = shared_ && graph_.value(value).memory_class == MemoryClass::weights;
      const auto [known, fresh] =
          loaded_.try_emplace(std::tuple(value, shared ? 0 : node.micro, node.phase), kNoValue);
      if (fresh) {
        known->second = load(graph_, node, value, Tier::device, MemoryClass::prefetch);
        const NodeId made = graph_.num_nodes() - 1;
        order_.insert_before(id, made);
        made_.push_back(made);
      }
      graph_.node(id).inputs[i] = known->second;
    }
  }

  Graph& graph_;
  OrderEdit& order_;
  int32_t ahead_;
  bool shared_;
  std::map<std::tuple<ValueId, int32_t, Phase>, ValueId> loaded_;
  std::vector<NodeId> made_;
};

/// Values that leave the device after they are made and come back before their next readers.
class Spills {
 public:
  Spills(Graph& graph, OrderEdit& order, int32_t ahead)
      : graph_(graph), order_(order), ahead_(ahead), readers_(at(graph.num_values())) {
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      for (const ValueId input : graph.node(id).inputs) {
        if (input != kNoValue) readers_[at(input)].push_back(id);
      }
    }
  }

  /// `value` waits in `tier` between its readers of the forward pass and those of the backward.
  void activation(ValueId value, Tier tier) {
    const Phase made = graph_.node(graph_.value(value).producer).phase;
    std::vector<NodeId> late;
    NodeId last_early = graph_.value(value).producer;
    for (const NodeId reader : readers_[at(value)]) {
      if (graph_.node(reader).phase == made) {
        last_early = std::max(last_early, reader);
      } else {
        late.push_back(reader);
      }
    }
    if (!late.empty()) spill(value, tier, last_early, late);
  }

  /// A gradient sum waits in `tier` for the next micro-batch. The last one stays there for the
  /// update, which loads it where it works.
  void gradient(ValueId value, Tier tier) {
    std::vector<NodeId> late;
    NodeId last_early = graph_.value(value).producer;
    const int32_t micro = graph_.node(last_early).micro;
    for (const NodeId reader : readers_[at(value)]) {
      const Node& node = graph_.node(reader);
      const bool waits = updates(node) || (node.phase == Phase::backward && node.micro != micro);
      if (waits) {
        late.push_back(reader);
      } else {
        last_early = std::max(last_early, reader);
      }
    }
    if (!late.empty()) spill(value, tier, last_early, late);
  }

  void finish() { order_.move_ahead(loads_, ahead_); }

 private:
  void spill(ValueId value, Tier tier, NodeId after, const std::vector<NodeId>& late) {
    const Node near = graph_.node(after);
    const MemoryClass memory_class = graph_.value(value).memory_class;
    const ValueId away = load(graph_, near, value, tier, memory_class);
    order_.insert_after(after, graph_.num_nodes() - 1);
    std::map<std::pair<Phase, int32_t>, ValueId> back;  // one return per pass
    for (const NodeId reader : late) {
      const Node node = graph_.node(reader);
      ValueId replacement = away;
      if (!updates(node)) {
        const auto [known, fresh] = back.try_emplace({node.phase, node.micro}, kNoValue);
        if (fresh) {
          known->second = load(graph_, node, away, Tier::device, memory_class);
          const NodeId made = graph_.num_nodes() - 1;
          order_.insert_before(reader, made);
          loads_.push_back(made);
        }
        replacement = known->second;
      }
      for (ValueId& input : graph_.node(reader).inputs) {
        if (input == value) input = replacement;
      }
    }
  }

  Graph& graph_;
  OrderEdit& order_;
  int32_t ahead_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> loads_;
};

/// Parameter of each gradient sum: what the updates read, followed back through the sums of earlier
/// micro-batches.
std::map<ValueId, std::string> gradient_sums(const Graph& graph) {
  std::map<ValueId, std::string> sums;
  for (const State& state : graph.states()) {
    if (state.result == kNoValue) continue;
    if (state.name.ends_with(kPendingSuffix) &&
        graph.value(state.result).memory_class == MemoryClass::gradients) {
      sums.emplace(state.result, parameter_name(state.name));
    }
    if (!state.slot.empty()) continue;
    const NodeId producer = graph.value(state.result).producer;
    const Node& node = graph.node(producer);
    if (!updates(node) || node.inputs[0] != state.value) continue;
    const std::string parameter = parameter_name(state.name);
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || graph.value(input).kind != ValueKind::node) continue;
      if (graph.type(input) == state.type) sums.emplace(input, parameter);
    }
  }
  // An addend of a gradient that is a gradient of the same type is the sum so far.
  for (NodeId id = graph.num_nodes() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::backward) continue;
    for (const ValueId output : node.outputs) {
      const auto found = output == kNoValue ? sums.end() : sums.find(output);
      if (found == sums.end()) continue;
      for (const ValueId input : node.inputs) {
        if (input == kNoValue) continue;
        const Value& value = graph.value(input);
        if (value.memory_class == MemoryClass::gradients && value.kind == ValueKind::node &&
            value.type == graph.type(output)) {
          sums.emplace(input, found->second);
        }
      }
    }
  }
  return sums;
}

/// Results of states that live elsewhere are stored there as soon as they exist.
void bring_results_home(Graph& graph) {
  OrderEdit order(graph);
  for (const State& state : std::vector<State>(graph.states())) {
    if (state.result == kNoValue || state.result == state.value) continue;
    const Value result = graph.value(state.result);
    if (result.tier == state.home) continue;
    const Node near = graph.node(result.producer);
    graph.set_scope(near.scope);
    graph.set_phase(near.phase);
    graph.set_micro(near.micro);
    const ValueId stored = graph.add(OpKind::store, {state.result, state.value});
    graph.value(stored).memory_class = graph.value(state.value).memory_class;
    order.insert_after(result.producer, graph.num_nodes() - 1);
    graph.set_state_result(state.name, stored);
  }
  order.apply();
}

/// Moves every sum of squares right behind the gradient it reads, so that gradients need not wait
/// on the device for the verdict.
void hoist_sums(Graph& graph) {
  OrderEdit order(graph);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    // What the verdict reads of a single gradient.
    if (node.phase != Phase::verdict || node.inputs.size() != 1 || op_def(node.op).collective)
      continue;
    if (graph.value(node.inputs[0]).memory_class != MemoryClass::gradients) continue;
    const NodeId producer = graph.value(node.inputs[0]).producer;
    if (producer == kNoNode) continue;
    order.remove(id);
    order.insert_after(producer, id);
  }
  order.apply();
}

}  // namespace

void offload(Graph& graph, const TierChoice& choice) {
  if (choice.empty()) return;
  if (!choice.gradients.empty()) hoist_sums(graph);
  for (const State& state : std::vector<State>(graph.states())) {
    const auto home = choice.homes.find(state.name);
    if (home != choice.homes.end()) graph.set_home(state.name, home->second);
    if (!state.name.ends_with(kPendingSuffix)) continue;
    const auto gradient = choice.gradients.find(parameter_name(state.name));
    if (gradient != choice.gradients.end()) graph.set_home(state.name, gradient->second);
  }
  {
    OrderEdit order(graph);
    Spills spills(graph, order, choice.loads_ahead);
    for (ValueId id = 0, count = graph.num_values(); id < count; ++id) {
      const Value& value = graph.value(id);
      if (value.kind != ValueKind::node || value.producer == kNoNode) continue;
      const auto wanted = choice.activations.find(value.name);
      if (wanted != choice.activations.end()) spills.activation(id, wanted->second);
    }
    if (!choice.gradients.empty()) {
      for (const auto& [value, parameter] : gradient_sums(graph)) {
        const auto wanted = choice.gradients.find(parameter);
        if (wanted != choice.gradients.end()) spills.gradient(value, wanted->second);
      }
    }
    spills.finish();
    order.apply();
  }
  offload_updates(graph, choice);
  bring_results_home(graph);
  OrderEdit order(graph);
  DeviceLoads(graph, order, choice).run();
  order.apply();
}

}  // namespace weft
