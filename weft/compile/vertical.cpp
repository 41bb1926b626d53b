#include "weft/compile/vertical.h"

#include <queue>
#include <tuple>

#include "weft/base/check.h"
#include "weft/compile/layer_of.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

class VerticalOrder {
 public:
  explicit VerticalOrder(Graph& graph) : graph_(graph), keys_(at(graph.num_nodes())) {
    for (const Node& node : graph_.nodes()) {
      if (layer_of(node.scope) != kNoLayer) layers_ = std::max(layers_, layer_of(node.scope) + 1);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) keys_[at(id)] = key_of(id);
  }

  /// Of the nodes whose operands exist, always the one with the smallest key.
  std::vector<NodeId> run() {
    const auto count = at(graph_.num_nodes());
    std::vector<std::vector<NodeId>> readers(count);
    std::vector<int32_t> missing(count, 0);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      for (const ValueId input : graph_.node(id).inputs) {
        if (input == kNoValue || graph_.value(input).producer == kNoNode) continue;
        readers[at(graph_.value(input).producer)].push_back(id);
        ++missing[at(id)];
      }
    }
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (missing[at(id)] == 0) ready.push(keys_[at(id)]);
    }
    std::vector<NodeId> order;
    order.reserve(count);
    while (!ready.empty()) {
      const NodeId id = std::get<NodeId>(ready.top());
      ready.pop();
      order.push_back(id);
      for (const NodeId reader : readers[at(id)]) {
        if (--missing[at(reader)] == 0) ready.push(keys_[at(reader)]);
      }
    }
    WEFT_CHECK(order.size() == count, "compile", "got {} of {} nodes in the vertical order",
               order.size(), count);
    return order;
  }

 private:
  struct Place {
    int64_t value = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Micro {
    int32_t value = 0;
    auto operator<=>(const Micro&) const = default;
  };
  using Key = std::tuple<Phase, Place, Micro, NodeId>;

  /// Layer k has place 2 k + 1 on the way forward and counts down on the way back. What lies
  /// outside the layers comes right after the layer it depends on, or first of all.
  Key key_of(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::forward && node.phase != Phase::backward) {
      return {node.phase, Place{0}, Micro{0}, id};
    }
    const int64_t layer = layer_of(node.scope);
    int64_t place = 0;
    if (layer != kNoLayer) {
      place = 2 * (node.phase == Phase::forward ? layer : layers_ - 1 - layer) + 1;
    } else {
      for (const ValueId input : node.inputs) place = std::max(place, place_after(node, input));
    }
    return {node.phase, Place{place}, Micro{node.micro}, id};
  }

  int64_t place_after(const Node& node, ValueId input) const {
    const NodeId producer = input == kNoValue ? kNoNode : graph_.value(input).producer;
    if (producer == kNoNode || graph_.node(producer).phase != node.phase ||
        graph_.node(producer).micro != node.micro) {
      return 0;
    }
    const int64_t place = std::get<Place>(keys_[at(producer)]).value;
    return place % 2 == 1 ? place + 1 : place;
  }

  Graph& graph_;
  int64_t layers_ = 0;
  std::vector<Key> keys_;
};

}  // namespace

void order_vertically(Graph& graph) { graph.reorder_nodes(VerticalOrder(graph).run()); }

}  // namespace weft
