#include "weft/compile/passes.h"

namespace weft {

void remove_dead_nodes(Graph& graph) {
  std::vector<char> live(static_cast<size_t>(graph.num_values()), 0);
  for (const auto& [name, id] : graph.outputs()) live[static_cast<size_t>(id)] = 1;
  for (const State& state : graph.states()) {
    if (state.result != kNoValue) live[static_cast<size_t>(state.result)] = 1;
  }
  std::vector<char> keep(static_cast<size_t>(graph.num_nodes()), 0);
  int32_t kept = 0;
  for (NodeId id = graph.num_nodes() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    bool needed = false;
    for (const ValueId output : node.outputs) {
      needed = needed || (output != kNoValue && live[static_cast<size_t>(output)] != 0);
    }
    if (!needed) continue;
    keep[static_cast<size_t>(id)] = 1;
    ++kept;
    for (const ValueId input : node.inputs) {
      if (input != kNoValue) live[static_cast<size_t>(input)] = 1;
    }
  }
  if (kept == graph.num_nodes()) return;
  std::vector<NodeId> order;
  order.reserve(static_cast<size_t>(kept));
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (keep[static_cast<size_t>(id)] != 0) order.push_back(id);
  }
  graph.reorder_nodes(order);
}

}  // namespace weft
