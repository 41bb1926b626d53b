// Text form of a graph: one line per state, input, node and output.
#include <fmt/core.h>

#include "weft/ir/graph.h"

namespace weft {
namespace {

std::string type_text(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), shape_text(type.shape));
}

std::string operand_text(const Graph& graph, ValueId id) {
  return id == kNoValue ? "_" : fmt::format("%{}", graph.value(id).name);
}

}  // namespace

std::string print_graph(const Graph& graph) {
  std::string text;
  for (const State& state : graph.states()) {
    text += fmt::format("state %{} : {} {}", state.name, type_text(state.type),
                        state_role_name(state.role));
    if (state.result != kNoValue) {
      text += fmt::format(" -> {}", operand_text(graph, state.result));
    }
    text += '\n';
  }
  for (const ValueId id : graph.inputs()) {
    text += fmt::format("input {} : {}\n", operand_text(graph, id), type_text(graph.type(id)));
  }
  for (const Node& node : graph.nodes()) {
    std::string line;
    for (const ValueId id : node.outputs) {
      if (!line.empty()) line += ", ";
      line += operand_text(graph, id);
      if (id != kNoValue) line += " : " + type_text(graph.type(id));
    }
    line += fmt::format(" = {}(", op_def(node.op).name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i != 0) line += ", ";
      line += operand_text(graph, node.inputs[i]);
    }
    line += ")";
    if (!node.attrs.entries().empty()) line += " {" + attrs_text(node.attrs) + "}";
    line += fmt::format("  # {} micro {}", phase_name(node.phase), node.micro);
    if (node.recomputed) line += " recomputed";
    text += line + '\n';
  }
  for (const auto& [name, id] : graph.outputs()) {
    text += fmt::format("output {} = {}\n", name, operand_text(graph, id));
  }
  return text;
}

}  // namespace weft
