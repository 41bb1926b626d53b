// The strategies a node may have, with their placements interned to small numbers so that the
// search over a large graph compares and prices integers. Internal to shard/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/shard/redistribute.h"
#include "weft/shard/strategy.h"

namespace weft {

/// Numbers for placements and types, and prices of routes between them.
class PlacementTable {
 public:
  explicit PlacementTable(Router& router) : router_(router) {}

  int intern(const Placement& placement);
  int intern_type(const TensorType& type);
  const Placement& at(int id) const { return placements_[static_cast<size_t>(id)]; }
  /// Bytes per rank, remembered.
  double bytes(int type, int from, int to);
  Router& router() { return router_; }

 private:
  Router& router_;
  std::vector<Placement> placements_;
  std::map<std::string, int> ids_;
  std::vector<TensorType> types_;
  std::map<std::string, int> type_ids_;
  std::unordered_map<uint64_t, double> prices_;
};

struct Candidate {
  NodeStrategy strategy;
  std::vector<int> inputs;  // placement per operand, -1 = absent
  std::vector<int> outputs;
  double work = 0;  // local work in units of transferred bytes
};

/// All nodes of one kind, with the same types and attributes, share one list.
struct CandidateSet {
  NodeView view;
  std::vector<Candidate> candidates;
};

/// What the axes may do to a node.
struct CandidateRules {
  std::vector<AxisId> data;  // axes that cut the batch, see Mesh::batch_axes
  AxisId expert = -1;        // the one of them that may cut experts instead
  AxisId op = -1;
  bool sequence = false;
  bool flat_updates = false;    // ZeRO >= 1
  bool flat_gradients = false;  // ZeRO >= 2: gradient sums are kept cut
  std::vector<int64_t> blocks;  // block sizes that given strategies use
};

class CandidateMaker {
 public:
  CandidateMaker(PlacementTable& table, CandidateRules rules)
      : table_(table), rules_(std::move(rules)) {}

  /// The list for a node; valid for the life of this object.
  const CandidateSet& of(const Graph& graph, const Node& node);
  /// A single strategy as a candidate.
  Candidate make(const NodeView& view, const Node& node, NodeStrategy strategy);

  /// What an axis that cuts the batch does where nothing else is given.
  std::vector<AxisChoice> data_choices(const Graph& graph, const Node& node,
                                       const NodeView& view) const;

 private:
  /// The same for axis expert: it cuts experts where there are some.
  std::vector<AxisChoice> expert_choices(const Graph& graph, const Node& node,
                                         const NodeView& view) const;
  std::vector<AxisChoice> op_choices(const NodeView& view) const;

  PlacementTable& table_;
  CandidateRules rules_;
  std::map<std::string, CandidateSet> known_;
};

}  // namespace weft
