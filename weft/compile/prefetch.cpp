#include "weft/compile/order_edit.h"
#include "weft/compile/passes.h"

namespace weft {
namespace {

/// A weight that is put together just before its use.
bool gathers_weight(const Graph& graph, const Node& node) {
  return op_def(node.op).collective && node.phase != Phase::update &&
         graph.value(node.outputs[0]).memory_class == MemoryClass::prefetch;
}

}  // namespace

void prefetch_weights(Graph& graph, int32_t ahead) {
  OrderEdit order(graph);
  std::vector<NodeId> gathers;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!gathers_weight(graph, graph.node(id))) continue;
    order.remove(id);
    order.insert_before(id, id);
    gathers.push_back(id);
  }
  if (gathers.empty()) return;
  order.move_ahead(gathers, ahead);
  order.apply();
}

}  // namespace weft
