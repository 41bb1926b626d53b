// Which values of the forward pass lie inside a segment of layers. Internal to recompute.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/ir/graph.h"

namespace weft {

class RecomputeMap {
 public:
  /// A segment is one micro-batch of `every` consecutive layers.
  RecomputeMap(const Graph& graph, int64_t every);

  static constexpr int32_t kOutside = -1;
  /// Segment of a forward node; kOutside for all others.
  int32_t segment(NodeId node) const { return segments_[static_cast<size_t>(node)]; }
  int32_t num_segments() const { return static_cast<int32_t>(ids_.size()); }
  /// Scope that `node` works for: a moved value belongs to whoever made it.
  const std::string& scope(NodeId node) const;
  /// Made inside a segment and read in the forward pass by nobody outside of it.
  bool inside(ValueId value) const { return inside_[static_cast<size_t>(value)] != 0; }
  /// Read by the backward pass.
  bool saved(ValueId value) const { return saved_[static_cast<size_t>(value)] != 0; }
  /// Per segment: does another layer run between its last forward node and the first reader of its
  /// values in the backward pass?
  std::vector<bool> segments_with_others_between() const;

 private:
  int32_t find_segment(NodeId id, int64_t every);
  void find_uses();

  const Graph& graph_;
  std::map<std::pair<int32_t, int64_t>, int32_t> ids_;  // (micro, group of layers) -> segment
  std::vector<int32_t> segments_;                       // per node
  std::vector<int32_t> places_;  // per node, backward ones too: the segment of its layer
  std::vector<NodeId> sources_;  // per node: who made what it moves, itself for other operators
  std::vector<char> inside_;     // per value
  std::vector<char> saved_;      // per value
};

}  // namespace weft
