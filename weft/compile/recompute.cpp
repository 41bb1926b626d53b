#include "weft/compile/recompute.h"

#include <map>
#include <utility>
#include <vector>

#include "weft/compile/recompute_map.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Recompute {
 public:
  Recompute(Graph& graph, const RecomputeChoice& choice)
      : graph_(graph),
        choice_(choice),
        map_(graph, choice.every > 0 ? choice.every : 1),
        copies_(at(graph.num_values()), kNoValue),
        placed_(at(graph.num_nodes()), false) {
    active_ = choice.every > 0 ? map_.segments_with_others_between()
                               : std::vector<bool>(at(map_.num_segments()), true);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) note_gathered(id);
  }

  void run() {
    const NodeId count = graph_.num_nodes();
    for (NodeId id = 0; id < count; ++id) {
      if (placed_[at(id)]) continue;
      if (graph_.node(id).phase != Phase::forward) read_copies(id);
      place(id);
    }
    if (graph_.num_nodes() > count) graph_.reorder_nodes(order_);
  }

 private:
  void place(NodeId id) {
    order_.push_back(id);
    placed_[at(id)] = true;
  }

  void read_copies(NodeId id) {
    const std::vector<ValueId> inputs = graph_.node(id).inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || !dropped(inputs[i])) continue;
      const ValueId copy = copy_of(inputs[i]);
      graph_.node(id).inputs[i] = copy;
    }
  }

  bool within(ValueId value) const {
    const NodeId producer = at(value) < copies_.size() ? graph_.value(value).producer : kNoNode;
    if (producer == kNoNode || graph_.node(producer).phase != Phase::forward) return false;
    return map_.inside(value) && active_[at(map_.segment(producer))];
  }

  bool dropped(ValueId value) const {
    if (!within(value)) return false;
    return choice_.every > 0 || choice_.scopes.contains(map_.scope(graph_.value(value).producer));
  }

  /// What a copy reads in place of `value`: a kept value is read as it is.
  ValueId copy_of(ValueId value) {
    if (!within(value) || (!dropped(value) && map_.saved(value))) return value;
    if (copies_[at(value)] == kNoValue) make(graph_.value(value).producer);
    return copies_[at(value)];
  }

  void make(NodeId id) {
    const Node node = graph_.node(id);  // a copy: adding nodes moves the list
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      inputs.push_back(input == kNoValue ? kNoValue : copy_of(input));
    }
    std::vector<ValueId> outputs = gathered_for_backward(node, inputs);
    if (outputs.empty()) outputs = add_copy(node, std::move(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) copies_[at(node.outputs[i])] = outputs[i];
    }
  }

  std::vector<ValueId> add_copy(const Node& node, std::vector<ValueId> inputs) {
    graph_.set_scope(node.scope);
    graph_.set_phase(Phase::backward);
    graph_.set_micro(node.micro);
    order_.push_back(graph_.num_nodes());
    std::vector<ValueId> outputs = graph_.add_node(node.op, std::move(inputs), node.attrs);
    graph_.node(order_.back()).recomputed = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNoValue) continue;
      graph_.value(outputs[i]).memory_class = graph_.value(node.outputs[i]).memory_class;
    }
    return outputs;
  }

  using Operands = std::pair<int32_t, std::vector<ValueId>>;  // micro-batch, inputs

  void note_gathered(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::backward || node.outputs[0] == kNoValue) return;
    if (graph_.value(node.outputs[0]).memory_class != MemoryClass::prefetch) return;
    gathered_[{node.micro, node.inputs}].push_back(id);
  }

  /// The backward pass gathers the same weights a little later: it does so now, for both. Empty
  /// when it does not.
  std::vector<ValueId> gathered_for_backward(const Node& node, const std::vector<ValueId>& inputs) {
    const auto found = gathered_.find({node.micro, inputs});
    if (found == gathered_.end()) return {};
    for (const NodeId id : found->second) {
      const Node& other = graph_.node(id);
      if (other.op != node.op || other.attrs != node.attrs) continue;
      if (!placed_[at(id)]) place(id);
      return other.outputs;
    }
    return {};
  }

  Graph& graph_;
  const RecomputeChoice& choice_;
  RecomputeMap map_;
  std::vector<bool> active_;     // per segment
  std::vector<ValueId> copies_;  // per value
  std::vector<bool> placed_;     // per node of the given graph
  std::map<Operands, std::vector<NodeId>> gathered_;
  std::vector<NodeId> order_;
};

}  // namespace

void recompute(Graph& graph, const RecomputeChoice& choice) {
  if (!choice.empty()) Recompute(graph, choice).run();
}

}  // namespace weft
