// Legality of a graph, checked between all passes.
#include "weft/base/check.h"
#include "weft/ir/graph.h"

namespace weft {
namespace {

std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::string text = fmt::format("node {} {} [{}] (", id, op_def(node.op).name, node.scope);
  for (const ValueId input : node.inputs) {
    text += input == kNoValue ? " _" : " " + graph.value(input).name;
  }
  return text + " )";
}

void verify_node(const Graph& graph, NodeId id, std::vector<char>& defined) {
  const Node& node = graph.node(id);
  const OpDef& def = op_def(node.op);
  const bool variadic = !def.inputs.empty() && def.inputs.back().ends_with('*');
  WEFT_CHECK(variadic ? node.inputs.size() + 1 >= def.inputs.size()
                      : node.inputs.size() == def.inputs.size(),
             "verify_graph", "{}: got {} inputs, expected {}", describe(graph, id),
             node.inputs.size(), def.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (input == kNoValue) {
      WEFT_CHECK(i < def.inputs.size() && def.inputs[i].ends_with('?'), "verify_graph",
                 "{}: required input {} is absent", describe(graph, id), i);
      continue;
    }
    WEFT_CHECK(defined[static_cast<size_t>(input)] != 0, "verify_graph",
               "{}: input {} is used before it is defined", describe(graph, id),
               graph.value(input).name);
  }
  const std::vector<TensorType> types = def.infer(graph.input_types(node), node.attrs);
  WEFT_CHECK(types == graph.output_types(node), "verify_graph",
             "{}: stored output types differ from the inferred ones", describe(graph, id));
  for (const ValueId output : node.outputs) {
    if (output == kNoValue) continue;
    WEFT_CHECK(defined[static_cast<size_t>(output)] == 0, "verify_graph", "{}: {} is defined twice",
               describe(graph, id), graph.value(output).name);
    WEFT_CHECK(graph.value(output).producer == id, "verify_graph", "{}: {} names another producer",
               describe(graph, id), graph.value(output).name);
    defined[static_cast<size_t>(output)] = 1;
  }
}

}  // namespace

void verify_graph(const Graph& graph) {
  std::vector<char> defined(static_cast<size_t>(graph.num_values()), 0);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).kind != ValueKind::node) defined[static_cast<size_t>(id)] = 1;
  }
  for (NodeId id = 0; id < graph.num_nodes(); ++id) verify_node(graph, id, defined);
  for (const auto& [name, id] : graph.outputs()) {
    WEFT_CHECK(defined[static_cast<size_t>(id)] != 0, "verify_graph", "output {} is not defined",
               name);
  }
  for (const State& state : graph.states()) {
    if (state.result == kNoValue) continue;
    WEFT_CHECK(defined[static_cast<size_t>(state.result)] != 0, "verify_graph",
               "result of state {} is not defined", state.name);
    WEFT_CHECK(graph.type(state.result) == state.type, "verify_graph",
               "result of state {} has another type", state.name);
  }
}

}  // namespace weft
