#include "weft/compile/order_edit.h"

#include <algorithm>
#include <numeric>

#include "weft/base/check.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

OrderEdit::OrderEdit(Graph& graph)
    : graph_(graph),
      original_(at(graph.num_nodes())),
      before_(original_.size()),
      after_(original_.size()),
      removed_(original_.size(), false) {
  std::iota(original_.begin(), original_.end(), 0);
}

void OrderEdit::insert_before(NodeId place, NodeId node) {
  before_[at(place)].push_back(node);
  if (at(node) >= place_.size()) place_.resize(at(node) + 1, kNoNode);
  place_[at(node)] = place;
}

void OrderEdit::insert_after(NodeId place, NodeId node) {
  after_[at(place)].push_back(node);
  behind_.emplace(node, place);
}

void OrderEdit::remove(NodeId node) { removed_[at(node)] = true; }

void OrderEdit::move_ahead(std::span<const NodeId> nodes, int32_t ahead) {
  // By place in the program, not by when they were made.
  std::vector<NodeId> sorted(nodes.begin(), nodes.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](NodeId a, NodeId b) { return place_[at(a)] < place_[at(b)]; });
  std::vector<NodeId> places;
  for (const NodeId node : sorted) places.push_back(place_[at(node)]);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const NodeId node = sorted[i];
    NodeId target = places[i < at(ahead) ? 0 : i - at(ahead)];
    const NodeId source = graph_.value(graph_.node(node).inputs[0]).producer;
    if (source != kNoNode) {
      // An inserted source stands behind the node it was inserted after.
      const auto behind = behind_.find(source);
      const NodeId earliest = at(source) < original_.size() ? source
                              : behind != behind_.end()     ? behind->second
                                                            : kNoNode;
      if (earliest != kNoNode && target <= earliest) target = std::min(earliest + 1, places[i]);
    }
    if (target == places[i]) continue;
    std::erase(before_[at(places[i])], node);
    insert_before(target, node);
  }
}

void OrderEdit::apply() {
  std::vector<NodeId> order;
  for (const NodeId id : original_) {
    order.insert(order.end(), before_[at(id)].begin(), before_[at(id)].end());
    if (!removed_[at(id)]) order.push_back(id);
    order.insert(order.end(), after_[at(id)].begin(), after_[at(id)].end());
  }
  graph_.reorder_nodes(order);
}

}  // namespace weft
