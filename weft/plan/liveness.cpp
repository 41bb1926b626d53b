#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/plan/passes.h"

namespace weft {
namespace {

/// Walks one program in order, keeping track of which value every buffer holds.
class BufferAssigner {
 public:
  BufferAssigner(const Graph& graph, std::span<const NodeId> order, int32_t program,
                 const std::map<std::string, int32_t>& state_buffers,
                 std::vector<PlanBuffer>& buffers)
      : graph_(graph),
        order_(order),
        program_(program),
        first_transient_(static_cast<int32_t>(buffers.size())),
        buffers_(buffers) {
    const auto num_values = static_cast<size_t>(graph.num_values());
    assigned_.assign(num_values, -1);
    forced_.assign(num_values, -1);
    last_use_.assign(num_values, -1);
    occupant_.assign(buffers.size(), kNoValue);
    find_last_uses();
    place_states(state_buffers);
    place_inputs();
  }

  std::vector<int32_t> run() {
    for (int32_t step = 0; step < num_steps(); ++step) {
      const Node& node = graph_.node(order_[static_cast<size_t>(step)]);
      taken_.assign(node.inputs.size(), false);
      // Outputs without a choice come first, so that an optional reuse cannot take their place.
      for (size_t i = 0; i < node.outputs.size(); ++i) place_required(node, step, i);
      for (size_t i = 0; i < node.outputs.size(); ++i) place_forced(node, step, i);
      for (size_t i = 0; i < node.outputs.size(); ++i) place_free(node, step, i);
    }
    check_states();
    return std::move(assigned_);
  }

 private:
  int32_t num_steps() const { return static_cast<int32_t>(order_.size()); }
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  bool present(ValueId value) const { return value != kNoValue && graph_.type(value).present(); }

  void find_last_uses() {
    for (int32_t step = 0; step < num_steps(); ++step) {
      for (ValueId input : graph_.node(order_[at(step)]).inputs) {
        if (input != kNoValue) last_use_[at(input)] = step;
      }
    }
    // Outputs and state results are read after the last step.
    for (const auto& [name, value] : graph_.outputs()) last_use_[at(value)] = num_steps();
    for (const State& state : graph_.states()) {
      if (state.result != kNoValue) last_use_[at(state.result)] = num_steps();
    }
  }

  void place_states(const std::map<std::string, int32_t>& state_buffers) {
    for (const State& state : graph_.states()) {
      const int32_t buffer = state_buffers.at(state.name);
      assigned_[at(state.value)] = buffer;
      occupant_[at(buffer)] = state.value;
      if (state.result == kNoValue || state.result == state.value) continue;
      const Value& result = graph_.value(state.result);
      WEFT_CHECK(result.kind == ValueKind::node, "plan",
                 "the result of state {} is {}, expected a value computed by a node", state.name,
                 result.name);
      WEFT_CHECK(result.type == graph_.type(state.value), "plan",
                 "the result of state {} has another type than the state", state.name);
      WEFT_CHECK(forced_[at(state.result)] < 0, "plan", "{} is the result of two states",
                 result.name);
      forced_[at(state.result)] = buffer;
    }
  }

  void place_inputs() {
    for (ValueId value : graph_.inputs()) {
      assigned_[at(value)] = new_buffer(value, 0);
    }
  }

  int32_t new_buffer(ValueId id, int32_t step) {
    const Value& value = graph_.value(id);
    PlanBuffer buffer;
    buffer.name = value.name;
    buffer.memory_class = value.kind == ValueKind::input ? MemoryClass::inputs : value.memory_class;
    buffer.tier = value.tier;
    buffer.type = value.type;
    buffer.bytes = value.type.bytes();
    buffer.program = program_;
    buffer.first_step = step;
    buffer.last_step = step;
    buffers_.push_back(std::move(buffer));
    occupant_.push_back(kNoValue);
    const auto index = static_cast<int32_t>(buffers_.size()) - 1;
    occupy(index, id);
    return index;
  }

  /// From now on `buffer` holds `value`.
  void occupy(int32_t buffer, ValueId value) {
    assigned_[at(value)] = buffer;
    occupant_[at(buffer)] = value;
    if (buffer >= first_transient_) {
      PlanBuffer& entry = buffers_[at(buffer)];
      const int32_t last = std::min(last_use_[at(value)], num_steps() - 1);
      entry.last_step = std::max({entry.last_step, last, entry.first_step});
      // A sum that becomes a gradient is counted as one from its first addend on.
      if (graph_.value(value).memory_class == MemoryClass::gradients) {
        entry.memory_class = MemoryClass::gradients;
      }
    }
  }

  /// Does operand `input` end at `step`, so that an output may take its place?
  bool ends_here(const Node& node, int32_t step, size_t input) const {
    const ValueId value = node.inputs[input];
    if (!present(value) || taken_[input] || last_use_[at(value)] != step) return false;
    return std::count(node.inputs.begin(), node.inputs.end(), value) == 1;
  }

  std::string describe(const Node& node, int32_t step) const {
    return fmt::format("step {} ({}, {})", step, op_def(node.op).name, node.scope);
  }

  void place_required(const Node& node, int32_t step, size_t output) {
    const ValueId value = node.outputs[output];
    if (!present(value)) return;
    for (const OpAlias& alias : op_def(node.op).aliases) {
      if (!alias.required || alias.output != static_cast<int>(output)) continue;
      const auto input = static_cast<size_t>(alias.input);
      if (input >= node.inputs.size() || !present(node.inputs[input])) continue;
      const int32_t buffer = assigned_[at(node.inputs[input])];
      WEFT_CHECK(ends_here(node, step, input), "plan",
                 "{} must update {} in place, but its old value is still needed",
                 describe(node, step), graph_.value(node.inputs[input]).name);
      WEFT_CHECK(forced_[at(value)] < 0 || forced_[at(value)] == buffer, "plan",
                 "{} updates {} in place, but the result belongs to another state",
                 describe(node, step), graph_.value(node.inputs[input]).name);
      WEFT_CHECK(graph_.type(value).bytes() == graph_.type(node.inputs[input]).bytes(), "plan",
                 "{} must update {} in place, but the sizes differ", describe(node, step),
                 graph_.value(node.inputs[input]).name);
      taken_[input] = true;
      occupy(buffer, value);
      return;
    }
  }

  /// May output `output` be written where operand `input` lies?
  static bool may_share(const OpDef& def, size_t input, size_t output) {
    const auto in = static_cast<int>(input);
    const auto out = static_cast<int>(output);
    if (def.in_place) return in == out;
    return std::any_of(def.aliases.begin(), def.aliases.end(),
                       [&](const OpAlias& a) { return a.input == in && a.output == out; }) ||
           std::any_of(def.addends.begin(), def.addends.end(),
                       [&](const OpAddend& a) { return a.input == in && a.output == out; });
  }

  void place_forced(const Node& node, int32_t step, size_t output) {
    const ValueId value = node.outputs[output];
    if (!present(value) || assigned_[at(value)] >= 0 || forced_[at(value)] < 0) return;
    const int32_t buffer = forced_[at(value)];
    const ValueId old = occupant_[at(buffer)];
    if (last_use_[at(old)] == step) {
      const auto found = std::find(node.inputs.begin(), node.inputs.end(), old);
      const auto input = static_cast<size_t>(found - node.inputs.begin());
      WEFT_CHECK(found != node.inputs.end() && ends_here(node, step, input) &&
                     may_share(op_def(node.op), input, output),
                 "plan", "{} writes the result of state {} while it reads its old value",
                 describe(node, step), buffers_[at(buffer)].name);
      taken_[input] = true;
    } else {
      WEFT_CHECK(last_use_[at(old)] < step, "plan",
                 "{} writes the result of state {}, whose old value is still needed",
                 describe(node, step), buffers_[at(buffer)].name);
    }
    occupy(buffer, value);
  }

  void place_free(const Node& node, int32_t step, size_t output) {
    const ValueId value = node.outputs[output];
    if (!present(value) || assigned_[at(value)] >= 0) return;
    const OpDef& def = op_def(node.op);
    for (size_t input = 0; input < node.inputs.size(); ++input) {
      if (!may_share(def, input, output) || !ends_here(node, step, input)) continue;
      const int32_t buffer = assigned_[at(node.inputs[input])];
      if (buffer < first_transient_ || buffers_[at(buffer)].bytes != graph_.type(value).bytes() ||
          buffers_[at(buffer)].tier != graph_.value(value).tier) {
        continue;
      }
      taken_[input] = true;
      occupy(buffer, value);
      return;
    }
    new_buffer(value, step);
  }

  void check_states() const {
    for (const State& state : graph_.states()) {
      const int32_t buffer = assigned_[at(state.value)];
      const ValueId expected = state.result == kNoValue ? state.value : state.result;
      WEFT_CHECK(occupant_[at(buffer)] == expected, "plan", "state {} ends as {}, expected {}",
                 state.name, graph_.value(occupant_[at(buffer)]).name, graph_.value(expected).name);
    }
  }

  const Graph& graph_;
  std::span<const NodeId> order_;
  int32_t program_;
  int32_t first_transient_;
  std::vector<PlanBuffer>& buffers_;
  std::vector<int32_t> assigned_;  // per value
  std::vector<int32_t> forced_;    // per value: the state buffer it must land in
  std::vector<int32_t> last_use_;  // per value: last reading step, num_steps = after the program
  std::vector<ValueId> occupant_;  // per buffer
  std::vector<bool> taken_;        // per operand of the current node: an output sits on it
};

}  // namespace

std::vector<int32_t> assign_buffers(const Graph& graph, std::span<const NodeId> order,
                                    int32_t program,
                                    const std::map<std::string, int32_t>& state_buffers,
                                    std::vector<PlanBuffer>& buffers) {
  return BufferAssigner(graph, order, program, state_buffers, buffers).run();
}

}  // namespace weft
