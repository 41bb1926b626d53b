#include <algorithm>

#include "weft/compile/passes.h"
#include "weft/shard/strategy.h"

namespace weft {
namespace {

bool cuts_something(const std::vector<std::string>& axes, const Mesh& mesh) {
  return std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
    return !axis.empty() && mesh.size(mesh.find(axis)) > 1;
  });
}

/// Does the entry cut a weight dim that the node's rule keeps whole?
bool needs_expansion(const Graph& graph, const Node& node, const ShardEntry& entry,
                     const Mesh& mesh) {
  const auto weight = entry.operands.find("weight");
  if (weight == entry.operands.end() || !cuts_something(weight->second, mesh)) return false;
  const NodeView view = view_node(graph, node);
  for (size_t i = 0; i < view.def->inputs.size(); ++i) {
    if (view.def->inputs[i] != "w") continue;
    for (const auto& dim : view.rule.inputs[i]) {
      if (!dim.empty() && !may_cut(view.rule, dim[0])) return true;
    }
  }
  return false;
}

}  // namespace

void expand_cut(Graph& graph, const std::vector<ShardEntry>& entries, const Mesh& mesh) {
  expand_where(graph, [&](const Node& node) {
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const ShardEntry& e) {
      return matches_module(e.pattern, node.scope);
    });
    return entry != entries.end() && needs_expansion(graph, node, *entry, mesh);
  });
}

}  // namespace weft
