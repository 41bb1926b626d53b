#include "weft/base/check.h"
#include "weft/compile/passes.h"

namespace weft {
namespace {

bool supported(const Graph& graph, const Node& node, const KernelSupport& support) {
  return support.supports({node.op, node.attrs, graph.input_types(node), graph.output_types(node)});
}

}  // namespace

void expand_unsupported(Graph& graph, const KernelSupport& support) {
  const NodeId count = graph.num_nodes();
  std::vector<NodeId> order;
  bool changed = false;
  for (NodeId id = 0; id < count; ++id) {
    const Node node = graph.node(id);  // a copy: adding nodes moves the list
    const OpDef& def = op_def(node.op);
    if (def.expand == nullptr || supported(graph, node, support)) {
      order.push_back(id);
      continue;
    }
    changed = true;
    graph.set_scope(node.scope);
    graph.set_phase(node.phase);
    graph.set_micro(node.micro);
    const NodeId first = graph.num_nodes();
    const std::vector<ValueId> results = def.expand(graph, node);
    for (NodeId made = first; made < graph.num_nodes(); ++made) order.push_back(made);
    for (size_t i = 0; i < results.size(); ++i) {
      graph.value(results[i]).memory_class = graph.value(node.outputs[i]).memory_class;
      graph.replace_uses(node.outputs[i], results[i]);
    }
  }
  if (changed) graph.reorder_nodes(order);
}

}  // namespace weft
