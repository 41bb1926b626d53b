#include <map>

#include "weft/base/check.h"
#include "weft/compile/passes.h"
#include "weft/ir/element_numbers.h"

namespace weft {

void number_moments(Graph& graph) {
  std::map<ValueId, const State*> slots;
  for (const State& state : graph.states()) {
    if (!state.slot.empty()) slots.emplace(state.value, &state);
  }
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    Node& node = graph.node(id);
    if (node.phase != Phase::update || !node.attrs.contains("site")) continue;
    const State* slot = nullptr;
    for (const ValueId input : node.inputs) {
      const auto found = slots.find(input);
      if (found != slots.end()) slot = found->second;
    }
    WEFT_CHECK(slot != nullptr, "number_moments", "the update of {} has no slot", node.scope);
    node.attrs.set("elements", ElementNumbers(*slot).text());
  }
}

}  // namespace weft
