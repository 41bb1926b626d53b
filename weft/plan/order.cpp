#include <algorithm>

#include "weft/plan/passes.h"

namespace weft {
namespace {

/// Nodes that lead to an output or to a state result.
std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> needed(static_cast<size_t>(graph.num_nodes()), false);
  const auto need = [&](ValueId value) {
    if (value == kNoValue) return;
    const NodeId producer = graph.value(value).producer;
    if (producer != kNoNode) needed[static_cast<size_t>(producer)] = true;
  };
  for (const auto& [name, value] : graph.outputs()) need(value);
  for (const State& state : graph.states()) need(state.result);
  for (NodeId id = graph.num_nodes() - 1; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    for (ValueId input : graph.node(id).inputs) need(input);
  }
  return needed;
}

bool reads_only_inputs(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
    return value == kNoValue || graph.value(value).kind == ValueKind::input;
  });
}

int64_t present_bytes(const Graph& graph, const std::vector<ValueId>& values) {
  int64_t bytes = 0;
  for (ValueId value : values) bytes += graph.type(value).bytes();
  return bytes;
}

}  // namespace

std::vector<NodeId> order_nodes(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  const auto count = static_cast<size_t>(graph.num_nodes());

  // Moved nodes wait in `before[first reader]`.
  std::vector<NodeId> first_reader(static_cast<size_t>(graph.num_values()), kNoNode);
  for (NodeId id = graph.num_nodes() - 1; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    for (ValueId input : graph.node(id).inputs) {
      if (input != kNoValue) first_reader[static_cast<size_t>(input)] = id;
    }
  }
  std::vector<std::vector<NodeId>> before(count);
  std::vector<bool> moved(count, false);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (!needed[static_cast<size_t>(id)] || !reads_only_inputs(graph, node)) continue;
    // A later place keeps the operands alive for longer: only worth it when the results are larger.
    if (present_bytes(graph, node.outputs) <= present_bytes(graph, node.inputs)) continue;
    NodeId reader = kNoNode;
    for (ValueId output : node.outputs) {
      if (output == kNoValue) continue;
      const NodeId first = first_reader[static_cast<size_t>(output)];
      if (first != kNoNode && (reader == kNoNode || first < reader)) reader = first;
    }
    if (reader == kNoNode) continue;
    before[static_cast<size_t>(reader)].push_back(id);
    moved[static_cast<size_t>(id)] = true;
  }

  std::vector<NodeId> order;
  order.reserve(count);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!needed[static_cast<size_t>(id)] || moved[static_cast<size_t>(id)]) continue;
    // A moved node's readers may be moved nodes themselves only if those read node values, which
    // they do not: one level is enough.
    for (NodeId early : before[static_cast<size_t>(id)]) order.push_back(early);
    order.push_back(id);
  }
  return order;
}

}  // namespace weft
