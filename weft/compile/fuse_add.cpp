#include <numeric>

#include "weft/base/check.h"
#include "weft/compile/passes.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

class FuseAdd {
 public:
  explicit FuseAdd(Graph& graph)
      : graph_(graph),
        uses_(static_cast<size_t>(graph.num_values()), 0),
        same_as_(static_cast<size_t>(graph.num_values())) {
    std::iota(same_as_.begin(), same_as_.end(), 0);
    for (const Node& node : graph_.nodes()) {
      for (const ValueId input : node.inputs) count_use(input);
    }
    for (const auto& [name, id] : graph_.outputs()) count_use(id);
    for (const State& state : graph_.states()) count_use(state.result);
  }

  void run() {
    std::vector<NodeId> kept;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.node(id).op != OpKind::add || !fold(id)) kept.push_back(id);
    }
    if (static_cast<int32_t>(kept.size()) == graph_.num_nodes()) return;
    graph_.substitute(same_as_);
    graph_.reorder_nodes(kept);
  }

 private:
  void count_use(ValueId id) {
    if (id != kNoValue) ++uses_[static_cast<size_t>(id)];
  }

  /// The value that stands for `id` after the folds so far. Sums are folded in graph order, so one
  /// look is enough.
  ValueId current(ValueId id) const { return same_as_[static_cast<size_t>(id)]; }

  /// Tries the operand that is made later first: the other one must exist before its kernel runs.
  bool fold(NodeId id) {
    const ValueId a = current(graph_.node(id).inputs[0]);
    const ValueId b = current(graph_.node(id).inputs[1]);
    if (a == b) return false;
    return producer(b) > producer(a) ? fold_into(id, b, a) : fold_into(id, a, b);
  }

  NodeId producer(ValueId id) const { return graph_.value(id).producer; }

  bool fold_into(NodeId add, ValueId made, ValueId other) {
    const NodeId maker = producer(made);
    if (maker == kNoNode || uses_[static_cast<size_t>(made)] != 1) return false;
    if (producer(other) >= maker) return false;
    Node& node = graph_.node(maker);
    const OpDef& def = op_def(node.op);
    for (const OpAddend& addend : def.addends) {
      const auto slot = static_cast<size_t>(addend.input);
      if (node.outputs[static_cast<size_t>(addend.output)] != made) continue;
      if (node.inputs[slot] != kNoValue) continue;
      node.inputs[slot] = other;
      const ValueId sum = graph_.node(add).outputs[0];
      if (graph_.value(sum).memory_class == MemoryClass::gradients) {
        graph_.value(made).memory_class = MemoryClass::gradients;
      }
      uses_[static_cast<size_t>(made)] = uses_[static_cast<size_t>(sum)];
      same_as_[static_cast<size_t>(sum)] = made;
      return true;
    }
    return false;
  }

  Graph& graph_;
  std::vector<int32_t> uses_;
  std::vector<ValueId> same_as_;  // by value: itself, or the kernel output that now holds the sum
};

}  // namespace

void fuse_add(Graph& graph) { FuseAdd(graph).run(); }

}  // namespace weft
