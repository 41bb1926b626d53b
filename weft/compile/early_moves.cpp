#include <algorithm>
#include <vector>

#include "weft/compile/passes.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

/// Activations and their gradients. Weights are gathered just before their use, those of the
/// verdict and the update have their own order.
bool may_start_early(const Graph& graph, const Node& node) {
  const bool made = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input != kNoValue && graph.value(input).producer != kNoNode;
  });
  return made && (node.phase == Phase::forward || node.phase == Phase::backward) &&
         graph.value(node.outputs[0]).memory_class != MemoryClass::prefetch;
}

}  // namespace

void start_collectives(Graph& graph) {
  // Every node stands behind its anchor, by default itself.
  std::vector<NodeId> anchor(at(graph.num_nodes()));
  NodeId pass_begin = 0;  // first node of this phase of this micro-batch
  NodeId last = 0;        // anchor of the collective before: they keep their order
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    const Node& begin = graph.node(pass_begin);
    if (node.phase != begin.phase || node.micro != begin.micro) pass_begin = id;
    anchor[at(id)] = id;
    if (!op_def(node.op).collective) continue;
    if (may_start_early(graph, node)) {
      NodeId place = std::max(pass_begin, last);
      for (const ValueId input : node.inputs) {
        place = std::max(place, anchor[at(graph.value(input).producer)]);
      }
      anchor[at(id)] = place;
    }
    last = anchor[at(id)];
  }
  std::vector<NodeId> order(anchor.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<NodeId>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeId a, NodeId b) { return anchor[at(a)] < anchor[at(b)]; });
  graph.reorder_nodes(order);
}

}  // namespace weft
