#include <numeric>

#include "weft/base/check.h"
#include "weft/compile/passes.h"

namespace weft {
namespace {

bool supported(const Graph& graph, const Node& node, const KernelSupport& support) {
  return support.supports({node.op, node.attrs, graph.input_types(node), graph.output_types(node)});
}

}  // namespace

void expand_where(Graph& graph, const std::function<bool(const Node& node)>& chosen) {
  const NodeId count = graph.num_nodes();
  std::vector<NodeId> order;
  std::vector<std::pair<ValueId, ValueId>> replaced;
  for (NodeId id = 0; id < count; ++id) {
    const Node node = graph.node(id);  // a copy: adding nodes moves the list
    const OpDef& def = op_def(node.op);
    if (def.expand == nullptr || !chosen(node)) {
      order.push_back(id);
      continue;
    }
    graph.set_scope(node.scope);
    graph.set_phase(node.phase);
    graph.set_micro(node.micro);
    const NodeId first = graph.num_nodes();
    const std::vector<ValueId> results = def.expand(graph, node);
    for (NodeId made = first; made < graph.num_nodes(); ++made) order.push_back(made);
    for (size_t i = 0; i < results.size(); ++i) {
      graph.value(results[i]).memory_class = graph.value(node.outputs[i]).memory_class;
      replaced.emplace_back(node.outputs[i], results[i]);
    }
  }
  if (replaced.empty()) return;
  std::vector<ValueId> replacement(static_cast<size_t>(graph.num_values()));
  std::iota(replacement.begin(), replacement.end(), 0);
  for (const auto& [from, to] : replaced) replacement[static_cast<size_t>(from)] = to;
  graph.substitute(replacement);
  graph.reorder_nodes(order);
}

void expand_unsupported(Graph& graph, const KernelSupport& support) {
  expand_where(graph, [&](const Node& node) { return !supported(graph, node, support); });
}

}  // namespace weft
