#include <algorithm>
#include <optional>

#include "weft/base/check.h"
#include "weft/compile/passes.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

class FuseAdd {
 public:
  explicit FuseAdd(Graph& graph)
      : graph_(graph), uses_(static_cast<size_t>(graph.num_values()), 0) {
    for (const Node& node : graph_.nodes()) {
      for (const ValueId input : node.inputs) {
        if (input != kNoValue) ++uses_[static_cast<size_t>(input)];
      }
    }
    for (const auto& [name, id] : graph_.outputs()) ++uses_[static_cast<size_t>(id)];
    for (const State& state : graph_.states()) {
      if (state.result != kNoValue) ++uses_[static_cast<size_t>(state.result)];
    }
  }

  void run() {
    std::vector<NodeId> kept;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.node(id).op != OpKind::add || !fold(id)) kept.push_back(id);
    }
    if (static_cast<int32_t>(kept.size()) < graph_.num_nodes()) graph_.reorder_nodes(kept);
  }

 private:
  /// Tries the operand that is made later first: the other one must exist before its kernel runs.
  bool fold(NodeId id) {
    const ValueId a = graph_.node(id).inputs[0];
    const ValueId b = graph_.node(id).inputs[1];
    if (a == b) return false;
    const bool b_later = producer(b) > producer(a);
    return b_later ? fold_into(id, b, a) : fold_into(id, a, b);
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
      graph_.replace_uses(sum, made);
      return true;
    }
    return false;
  }

  Graph& graph_;
  std::vector<int32_t> uses_;
};

}  // namespace

void fuse_add(Graph& graph) { FuseAdd(graph).run(); }

}  // namespace weft
