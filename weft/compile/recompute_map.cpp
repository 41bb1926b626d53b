#include "weft/compile/recompute_map.h"

#include "weft/compile/layer_of.h"
#include "weft/ops/collective.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

/// Sums of parts: as the last act of the layer that made the parts, not the first one of the
/// reader.
bool sums_parts(const Graph& graph, const Node& node) {
  if (!op_def(node.op).collective) return false;
  const CollectiveKind kind =
      collective_spec({node.op, node.attrs, graph.input_types(node), graph.output_types(node)})
          .kind;
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

}  // namespace

RecomputeMap::RecomputeMap(const Graph& graph, int64_t every)
    : graph_(graph), inside_(at(graph.num_values()), 0), saved_(at(graph.num_values()), 0) {
  for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
    const Node& node = graph_.node(id);
    NodeId source = id;
    if (op_def(node.op).collective && node.inputs[0] != kNoValue) {
      const NodeId producer = graph_.value(node.inputs[0]).producer;
      if (producer != kNoNode) source = sources_[at(producer)];
    }
    sources_.push_back(source);
    places_.push_back(find_segment(id, every));
    segments_.push_back(node.phase == Phase::forward ? places_.back() : kOutside);
  }
  find_uses();
}

const std::string& RecomputeMap::scope(NodeId node) const {
  return graph_.node(sources_[at(node)]).scope;
}

int32_t RecomputeMap::find_segment(NodeId id, int64_t every) {
  const Node& node = graph_.node(id);
  if (node.phase != Phase::forward && node.phase != Phase::backward) return kOutside;
  const int64_t layer = layer_of(sums_parts(graph_, node) ? scope(id) : node.scope);
  if (layer == kNoLayer) return kOutside;
  const auto next = static_cast<int32_t>(ids_.size());
  return ids_.try_emplace({node.micro, layer / every}, next).first->second;
}

void RecomputeMap::find_uses() {
  for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
    if (segment(id) == kOutside) continue;
    for (const ValueId output : graph_.node(id).outputs) {
      if (output != kNoValue) inside_[at(output)] = 1;
    }
  }
  for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
    const Node& node = graph_.node(id);
    for (const ValueId input : node.inputs) {
      const NodeId producer = input == kNoValue ? kNoNode : graph_.value(input).producer;
      if (producer == kNoNode) continue;
      if (node.phase != Phase::forward) {
        saved_[at(input)] = 1;
      } else if (segment(id) != segment(producer)) {
        inside_[at(input)] = 0;
      }
    }
  }
  for (const auto& [name, value] : graph_.outputs()) inside_[at(value)] = 0;
  for (const State& state : graph_.states()) {
    if (state.result != kNoValue) inside_[at(state.result)] = 0;
  }
}

std::vector<bool> RecomputeMap::segments_with_others_between() const {
  std::vector<NodeId> last(ids_.size(), kNoNode);
  std::vector<NodeId> first(ids_.size(), kNoNode);
  for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
    const Node& node = graph_.node(id);
    if (node.phase == Phase::forward) {
      if (segment(id) != kOutside) last[at(segment(id))] = id;
      continue;
    }
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || !inside(input)) continue;
      NodeId& reader = first[at(segment(graph_.value(input).producer))];
      if (reader == kNoNode) reader = id;
    }
  }
  std::vector<bool> result(ids_.size(), false);
  for (size_t s = 0; s < ids_.size(); ++s) {
    for (NodeId id = last[s] + 1; id < first[s] && !result[s]; ++id) {
      result[s] = places_[at(id)] != kOutside && places_[at(id)] != static_cast<int32_t>(s);
    }
  }
  return result;
}

}  // namespace weft
