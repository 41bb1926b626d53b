#include "weft/autodiff/backward.h"

#include <set>

#include "weft/base/check.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

class Backward {
 public:
  Backward(Graph& graph, NodeId first, std::span<const ValueId> wanted,
           const std::map<ValueId, ValueId>& initial)
      : graph_(graph), first_(first), sums_(initial), wanted_(wanted.begin(), wanted.end()) {
    mark_dependents();
  }

  void seed(ValueId loss, ValueId cotangent) { sums_[loss] = cotangent; }

  void walk(NodeId end) {
    for (NodeId id = end - 1; id >= first_; --id) visit(id);
  }

  std::map<ValueId, ValueId> take_wanted() {
    std::map<ValueId, ValueId> result;
    for (const ValueId id : wanted_) {
      const auto at = sums_.find(id);
      if (at != sums_.end()) result[id] = at->second;
    }
    return result;
  }

 private:
  /// Values that depend on a wanted value; only they need gradients.
  void mark_dependents() {
    needs_.assign(static_cast<size_t>(graph_.num_values()), 0);
    for (const ValueId id : wanted_) needs_[static_cast<size_t>(id)] = 1;
    for (NodeId id = first_; id < graph_.num_nodes(); ++id) {
      bool any = false;
      for (const ValueId input : graph_.node(id).inputs) {
        any = any || (input != kNoValue && needs_[static_cast<size_t>(input)] != 0);
      }
      if (!any) continue;
      for (const ValueId output : graph_.node(id).outputs) {
        if (output != kNoValue) needs_[static_cast<size_t>(output)] = 1;
      }
    }
  }

  void visit(NodeId id) {
    const Node node = graph_.node(id);  // a copy: adding nodes moves the list
    std::vector<ValueId> output_grads;
    bool any = false;
    for (const ValueId output : node.outputs) {
      const auto at = output == kNoValue ? sums_.end() : sums_.find(output);
      output_grads.push_back(at == sums_.end() ? kNoValue : at->second);
      any = any || at != sums_.end();
    }
    bool wanted = false;
    for (const ValueId input : node.inputs) wanted = wanted || needs(input);
    if (!any || !wanted) return;
    const OpDef& def = op_def(node.op);
    WEFT_CHECK(def.grad != nullptr, "backward", "{} [{}] has no gradient: {}", def.name, node.scope,
               def.no_grad);
    graph_.set_scope(node.scope);
    const std::vector<ValueId> grads = def.grad(graph_, node, output_grads);
    WEFT_CHECK(grads.size() == node.inputs.size(), "backward",
               "gradient of {} gave {} values for {} inputs", def.name, grads.size(),
               node.inputs.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i] != kNoValue && needs(node.inputs[i])) accumulate(node.inputs[i], grads[i]);
    }
  }

  bool needs(ValueId id) const {
    return id != kNoValue && static_cast<size_t>(id) < needs_.size() &&
           needs_[static_cast<size_t>(id)] != 0;
  }

  void accumulate(ValueId target, ValueId grad) {
    const auto [at, first] = sums_.try_emplace(target, grad);
    if (!first) at->second = graph_.add(OpKind::add, {at->second, grad});
    if (wanted_.contains(target)) {
      graph_.value(at->second).memory_class = MemoryClass::gradients;
      graph_.value(grad).memory_class = MemoryClass::gradients;
    }
  }

  Graph& graph_;
  NodeId first_;
  std::map<ValueId, ValueId> sums_;
  std::set<ValueId> wanted_;
  std::vector<char> needs_;
};

}  // namespace

std::map<ValueId, ValueId> backward(Graph& graph, NodeId first, ValueId loss, ValueId cotangent,
                                    std::span<const ValueId> wanted,
                                    const std::map<ValueId, ValueId>& initial) {
  const NodeId end = graph.num_nodes();
  graph.set_phase(Phase::backward);
  Backward pass(graph, first, wanted, initial);
  pass.seed(loss, cotangent);
  pass.walk(end);
  return pass.take_wanted();
}

}  // namespace weft
