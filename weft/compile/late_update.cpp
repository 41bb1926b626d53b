#include "weft/compile/late_update.h"

#include <algorithm>
#include <map>

#include "weft/base/check.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

class LateUpdate {
 public:
  explicit LateUpdate(Graph& graph) : graph_(graph), is_update_(at(graph.num_nodes()), false) {
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      is_update_[at(id)] = graph.node(id).phase == Phase::update;
    }
  }

  Graph run() {
    carry_operands();
    read_new_weights();
    Graph flush = copy_updates();
    reorder();
    return flush;
  }

 private:
  bool made_by_update(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer != kNoNode && is_update_[at(producer)];
  }

  /// Parameter whose update reads `value` as its gradient or its statistics; "" for scalars.
  std::string parameter_of(const Node& node, ValueId value) const {
    const Value& first = graph_.value(node.inputs[0]);
    if (first.kind != ValueKind::state) return "";
    if (graph_.type(value).elements() == 1 &&
        graph_.value(value).memory_class != MemoryClass::gradients) {
      return "";
    }
    return parameter_name(first.name);
  }

  /// What updates read of the passes before them waits in a state.
  void carry_operands() {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (!is_update_[at(id)]) continue;
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const ValueId value = graph_.node(id).inputs[i];
        if (value == kNoValue || graph_.value(value).kind != ValueKind::node) continue;
        if (made_by_update(value)) continue;
        graph_.node(id).inputs[i] = waiting(graph_.node(id), value);
      }
    }
  }

  ValueId waiting(const Node& node, ValueId value) {
    const auto known = waiting_.find(value);
    if (known != waiting_.end()) return known->second;
    State state;
    const std::string parameter = parameter_of(node, value);
    state.name = (parameter.empty() ? scalar_name(value) : parameter) + kPendingSuffix;
    state.role = StateRole::moment;
    state.slot = "pending";
    state.type = graph_.type(value);
    const std::string name = state.name;
    const ValueId id = graph_.add_state(std::move(state));
    graph_.value(id).memory_class = MemoryClass::gradients;
    graph_.set_state_result(name, value);
    waiting_.emplace(value, id);
    return id;
  }

  /// The verdict's outputs by what they are: "factor", "apply".
  std::string scalar_name(ValueId value) const {
    const Node& node = graph_.node(graph_.value(value).producer);
    const OpDef& def = op_def(node.op);
    const auto output = static_cast<size_t>(graph_.value(value).output_index);
    WEFT_CHECK(output < def.outputs.size(), "late_update",
               "{} gives the update a value without a name", def.name);
    return std::string(def.outputs[output]);
  }

  /// Forward and backward read the weights that the update makes.
  void read_new_weights() {
    std::map<ValueId, ValueId> fresh;
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue || !made_by_update(state.result)) continue;
      fresh.emplace(state.value, state.result);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (is_update_[at(id)]) continue;
      for (ValueId& input : graph_.node(id).inputs) {
        const auto found = fresh.find(input);
        if (found != fresh.end()) input = found->second;
      }
    }
  }

  /// The update nodes alone, on states of the same names.
  Graph copy_updates() const {
    Graph flush;
    std::map<ValueId, ValueId> copied;
    std::map<ValueId, std::string> state_of;
    for (const State& state : graph_.states()) {
      State copy = state;
      copy.value = kNoValue;
      copy.result = kNoValue;
      const ValueId id = flush.add_state(std::move(copy));
      flush.value(id).memory_class = graph_.value(state.value).memory_class;
      copied.emplace(state.value, id);
      state_of.emplace(state.value, state.name);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (!is_update_[at(id)]) continue;
      const Node& node = graph_.node(id);
      std::vector<ValueId> inputs;
      for (const ValueId input : node.inputs) {
        if (input != kNoValue && !copied.contains(input)) {
          const Value& value = graph_.value(input);
          WEFT_CHECK(value.kind == ValueKind::input, "late_update", "update reads {}", value.name);
          copied.emplace(input, flush.add_input(value.name, value.type, value.batched));
        }
        inputs.push_back(input == kNoValue ? kNoValue : copied.at(input));
      }
      flush.set_scope(node.scope);
      flush.set_phase(node.phase);
      flush.set_micro(node.micro);
      const std::vector<ValueId> outputs = flush.add_node(node.op, std::move(inputs), node.attrs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i] == kNoValue) continue;
        flush.value(outputs[i]).memory_class = graph_.value(node.outputs[i]).memory_class;
        copied.emplace(node.outputs[i], outputs[i]);
      }
    }
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue || !made_by_update(state.result)) continue;
      flush.set_state_result(state.name, copied.at(state.result));
    }
    return flush;
  }

  /// Updates stand right before the first node that reads what they make, or that makes the next
  /// value of what they read: a rank may hold a weight that its passes do not read.
  void reorder() {
    placed_.assign(at(graph_.num_nodes()), false);
    std::map<ValueId, ValueId> next_of;
    for (const auto& [next, state] : waiting_) next_of.emplace(state, next);
    std::map<ValueId, std::vector<NodeId>> readers;  // of a waiting value, by its next value
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (!is_update_[at(id)]) continue;
      for (const ValueId input : graph_.node(id).inputs) {
        const auto found = next_of.find(input);
        if (found != next_of.end()) readers[found->second].push_back(id);
      }
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (is_update_[at(id)]) continue;
      place_operands(id);
      for (const ValueId output : graph_.node(id).outputs) {
        const auto found = readers.find(output);
        if (found == readers.end()) continue;
        for (const NodeId reader : found->second) place(reader);
      }
      order_.push_back(id);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (is_update_[at(id)]) place(id);
    }
    graph_.reorder_nodes(order_);
  }

  void place_operands(NodeId id) {
    for (const ValueId input : graph_.node(id).inputs) {
      if (input != kNoValue && made_by_update(input)) place(graph_.value(input).producer);
    }
  }

  void place(NodeId id) {
    if (placed_[at(id)]) return;
    placed_[at(id)] = true;
    place_operands(id);
    order_.push_back(id);
  }

  Graph& graph_;
  std::vector<bool> is_update_;
  std::map<ValueId, ValueId> waiting_;  // value -> state that keeps it for the next step
  std::vector<NodeId> order_;
  std::vector<bool> placed_;
};

}  // namespace

Graph delay_updates(Graph& train) { return LateUpdate(train).run(); }

}  // namespace weft
