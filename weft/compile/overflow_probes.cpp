#include <fmt/core.h>

#include "weft/compile/order_edit.h"
#include "weft/compile/passes.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

/// A second sum over more elements would be felt.
constexpr int64_t kLargest = int64_t{1} << 16;

/// Sums a gradient of a norm weight or a bias with those of other ranks.
bool sums_vector(const Graph& graph, const Node& node) {
  if (!op_def(node.op).collective || node.phase != Phase::backward || node.inputs.size() != 1) {
    return false;
  }
  const Value& own = graph.value(node.inputs[0]);
  return graph.value(node.outputs[0]).memory_class == MemoryClass::gradients &&
         own.kind == ValueKind::node && own.type.shape.size() == 1 &&
         own.type.elements() <= kLargest;
}

}  // namespace

void add_overflow_probes(Graph& graph) {
  OrderEdit order(graph);
  const NodeId count = graph.num_nodes();
  int probes = 0;
  for (NodeId id = 0; id < count; ++id) {
    const Node node = graph.node(id);  // a copy: adding nodes moves the list
    if (!sums_vector(graph, node)) continue;
    graph.set_scope(node.scope);
    graph.set_phase(node.phase);
    graph.set_micro(node.micro);
    const ValueId sum = graph.add(OpKind::sum_squares, {node.inputs[0]});
    order.insert_before(id, graph.value(sum).producer);
    graph.set_output(fmt::format("{}{}", kOwnProbe, probes++), sum);
  }
  if (probes > 0) order.apply();
}

}  // namespace weft
