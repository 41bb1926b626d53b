#include "tests/support/interpret.h"

#include "tests/support/run_kernel.h"
#include "weft/base/check.h"
#include "weft/ops/op_kind.h"

namespace weft::test {

std::vector<HostTensor> interpret(const Graph& graph, Backend& backend, const Feeds& feeds) {
  std::vector<HostTensor> values(static_cast<size_t>(graph.num_values()));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    const auto fed = feeds.find(value.name);
    if (value.kind == ValueKind::node || fed == feeds.end()) continue;
    WEFT_CHECK(fed->second.type == value.type, "interpret", "{}: fed {}{}, the graph has {}{}",
               value.name, dtype_name(fed->second.type.dtype), shape_text(fed->second.type.shape),
               dtype_name(value.type.dtype), shape_text(value.type.shape));
    values[static_cast<size_t>(id)] = fed->second;
  }
  for (const Node& node : graph.nodes()) {
    std::vector<HostTensor> inputs;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      WEFT_CHECK(values[static_cast<size_t>(id)].present(), "interpret", "{} reads {}, not fed",
                 op_name(node.op), graph.value(id).name);
      inputs.push_back(values[static_cast<size_t>(id)]);
    }
    const KernelSpec spec{node.op, node.attrs, graph.input_types(node), graph.output_types(node)};
    KernelRun run = run_kernel(backend, spec, inputs);
    WEFT_CHECK(run.faults.empty(), "interpret", "{} in {}: {}", op_name(node.op), node.scope,
               run.faults[0]);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      values[static_cast<size_t>(node.outputs[i])] = std::move(run.outputs[i]);
    }
  }
  return values;
}

Feeds state_results(const Graph& graph, const std::vector<HostTensor>& values) {
  Feeds results;
  for (const State& state : graph.states()) {
    const ValueId id = state.result == kNoValue ? state.value : state.result;
    results[state.name] = values[static_cast<size_t>(id)];
  }
  return results;
}

}  // namespace weft::test
