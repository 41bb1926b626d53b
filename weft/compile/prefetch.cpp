#include <algorithm>

#include "weft/compile/passes.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

/// A weight that is put together just before its use.
bool gathers_weight(const Graph& graph, const Node& node) {
  return op_def(node.op).collective && node.phase != Phase::update &&
         graph.value(node.outputs[0]).memory_class == MemoryClass::prefetch;
}

}  // namespace

void prefetch_weights(Graph& graph, int32_t ahead) {
  std::vector<NodeId> gathers;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (gathers_weight(graph, graph.node(id))) gathers.push_back(id);
  }
  if (gathers.empty()) return;
  // Gather i goes to where gather i - ahead stood.
  std::vector<std::vector<NodeId>> before(at(graph.num_nodes()));
  for (size_t i = 0; i < gathers.size(); ++i) {
    const size_t place = i < at(ahead) ? 0 : i - at(ahead);
    before[at(gathers[place])].push_back(gathers[i]);
  }
  std::vector<NodeId> order;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    order.insert(order.end(), before[at(id)].begin(), before[at(id)].end());
    if (!std::binary_search(gathers.begin(), gathers.end(), id)) order.push_back(id);
  }
  graph.reorder_nodes(order);
}

}  // namespace weft
