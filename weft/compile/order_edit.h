// Edits of a graph's node order, collected and then applied at once. Internal to compile/.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "weft/ir/graph.h"

namespace weft {

class OrderEdit {
 public:
  /// Nodes that `graph` has now keep their order; later ones must be inserted.
  explicit OrderEdit(Graph& graph);

  /// Several insertions at one place keep the order of the calls.
  void insert_before(NodeId place, NodeId node);
  void insert_after(NodeId place, NodeId node);
  /// Takes a node out of its place; insert it elsewhere or it is dropped.
  void remove(NodeId node);
  /// Node i of `nodes`, all inserted before others, goes to where node i - `ahead` stands, but
  /// never before the node that makes its first input.
  void move_ahead(std::span<const NodeId> nodes, int32_t ahead);
  /// Gives the graph its new order.
  void apply();

 private:
  Graph& graph_;
  std::vector<NodeId> original_;
  std::vector<std::vector<NodeId>> before_;
  std::vector<std::vector<NodeId>> after_;
  std::vector<bool> removed_;
  std::vector<NodeId> place_;        // of inserted nodes: what they stand before, or -1
  std::map<NodeId, NodeId> behind_;  // inserted node -> the node it stands behind
};

}  // namespace weft
