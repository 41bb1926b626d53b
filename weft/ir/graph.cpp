#include "weft/ir/graph.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {
namespace {

const TensorType kAbsent;

/// "bias?" -> "bias", "sums*" -> "sums".
std::string_view bare_name(std::string_view name) {
  if (!name.empty() && (name.back() == '?' || name.back() == '*')) name.remove_suffix(1);
  return name;
}

}  // namespace

std::string parameter_name(std::string_view state) {
  return std::string(state.substr(0, state.find('@')));
}

const TensorType& Graph::type(ValueId id) const {
  return id == kNoValue ? kAbsent : value(id).type;
}

std::string Graph::unique_name(std::string base) {
  int& uses = names_[base];
  ++uses;
  return uses == 1 ? base : fmt::format("{}~{}", base, uses);
}

ValueId Graph::add_input(std::string name, TensorType type, bool batched) {
  const ValueId id = num_values();
  Value value;
  value.kind = ValueKind::input;
  value.name = unique_name(std::move(name));
  value.type = std::move(type);
  value.memory_class = MemoryClass::inputs;
  value.batched = batched;
  values_.push_back(std::move(value));
  inputs_.push_back(id);
  return id;
}

ValueId Graph::add_state(State state) {
  WEFT_CHECK(!state_index_.contains(state.name), "graph", "state {} exists twice", state.name);
  const ValueId id = num_values();
  Value value;
  value.kind = ValueKind::state;
  value.name = unique_name(state.name);
  value.type = state.type;
  value.tier = state.home;
  value.memory_class =
      state.role == StateRole::weight ? MemoryClass::weights : MemoryClass::optimizer;
  values_.push_back(std::move(value));
  state.value = id;
  state_index_[state.name] = states_.size();
  states_.push_back(std::move(state));
  return id;
}

std::vector<ValueId> Graph::add_node(OpKind op, std::vector<ValueId> inputs, Attrs attrs) {
  const OpDef& def = op_def(op);
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.scope = scope_;
  node.phase = phase_;
  node.micro = micro_;
  node.on_host = on_host_;
  const std::vector<TensorType> types = def.infer(input_types(node), node.attrs);
  const NodeId id = num_nodes();
  for (size_t i = 0; i < types.size(); ++i) {
    if (!types[i].present()) {
      node.outputs.push_back(kNoValue);
      continue;
    }
    std::string name =
        scope_.empty() ? std::string(def.name) : fmt::format("{}.{}", scope_, def.name);
    if (i > 0 && i < def.outputs.size()) name += fmt::format(".{}", bare_name(def.outputs[i]));
    if (i >= def.outputs.size()) name += fmt::format(".{}", i);
    Value value;
    value.name = unique_name(std::move(name));
    value.type = types[i];
    value.producer = id;
    value.output_index = static_cast<int>(i);
    value.tier = def.tier_of ? def.tier_of(*this, node) : on_host_ ? Tier::host : Tier::device;
    node.outputs.push_back(num_values());
    values_.push_back(std::move(value));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

ValueId Graph::add(OpKind op, std::vector<ValueId> inputs, Attrs attrs) {
  const std::vector<ValueId> outputs = add_node(op, std::move(inputs), std::move(attrs));
  WEFT_CHECK(outputs.size() == 1, "graph", "{} has {} outputs, expected 1", op_def(op).name,
             outputs.size());
  return outputs[0];
}

void Graph::set_output(std::string name, ValueId value) {
  WEFT_CHECK(value != kNoValue && !outputs_.contains(name), "graph",
             "output {} is set twice or empty", name);
  outputs_[std::move(name)] = value;
}

void Graph::set_state_result(std::string_view state, ValueId value) {
  const auto at = state_index_.find(state);
  WEFT_CHECK(at != state_index_.end(), "graph", "no state {}", state);
  states_[at->second].result = value;
}

void Graph::set_home(std::string_view state, Tier home) {
  const auto at = state_index_.find(state);
  WEFT_CHECK(at != state_index_.end(), "graph", "no state {}", state);
  State& entry = states_[at->second];
  entry.home = home;
  value(entry.value).tier = home;
}

const State* Graph::find_state(std::string_view name) const {
  const auto at = state_index_.find(name);
  return at == state_index_.end() ? nullptr : &states_[at->second];
}

std::vector<TensorType> Graph::input_types(const Node& node) const {
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (const ValueId id : node.inputs) types.push_back(type(id));
  return types;
}

std::vector<TensorType> Graph::output_types(const Node& node) const {
  std::vector<TensorType> types;
  types.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) types.push_back(type(id));
  return types;
}

void Graph::reorder_nodes(std::span<const NodeId> order) {
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (Value& value : values_) value.producer = kNoNode;
  for (const NodeId id : order) {
    nodes.push_back(std::move(nodes_[static_cast<size_t>(id)]));
    for (const ValueId output : nodes.back().outputs) {
      if (output != kNoValue) value(output).producer = static_cast<NodeId>(nodes.size() - 1);
    }
  }
  nodes_ = std::move(nodes);
}

void Graph::substitute(std::span<const ValueId> replacement) {
  WEFT_CHECK(static_cast<int32_t>(replacement.size()) == num_values(), "graph",
             "got {} replacements for {} values", replacement.size(), num_values());
  const auto replace = [&](ValueId& id) {
    if (id != kNoValue) id = replacement[static_cast<size_t>(id)];
  };
  for (Node& node : nodes_) std::for_each(node.inputs.begin(), node.inputs.end(), replace);
  for (auto& [name, id] : outputs_) replace(id);
  for (State& state : states_) replace(state.result);
}

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::verdict: return "verdict";
    case Phase::update: return "update";
  }
  return "?";
}

std::string_view memory_class_name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::weights: return "weights";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::optimizer: return "optimizer";
    case MemoryClass::activations: return "activations";
    case MemoryClass::workspace: return "workspace";
    case MemoryClass::prefetch: return "prefetch";
    case MemoryClass::inputs: return "inputs";
  }
  return "?";
}

std::string_view state_role_name(StateRole role) {
  switch (role) {
    case StateRole::weight: return "weight";
    case StateRole::master: return "master";
    case StateRole::moment: return "moment";
  }
  return "?";
}

}  // namespace weft
