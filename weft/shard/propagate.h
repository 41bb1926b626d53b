// Chooses a strategy for every node of a step graph: given ones first, the others by least
// redistribution.
#pragma once

#include <vector>

#include "weft/ir/graph.h"
#include "weft/shard/entries.h"
#include "weft/shard/redistribute.h"
#include "weft/shard/strategy.h"

namespace weft {

struct ShardOptions {
  std::vector<ShardEntry> entries;  // the first that matches a module counts
  bool sequence = false;            // op may cut the sequence
  int zero = 0;                     // stage, see docs/sharding.md
};

/// The cut of a whole graph. Indexed like the graph's nodes and values.
struct Sharding {
  std::vector<ShardingRule> rules;
  std::vector<NodeStrategy> strategies;
  std::vector<NodePlacements> nodes;
  std::vector<Placement> values;  // what the producer gives; of inputs and states, what is stored
};

/// UsageError when given strategies contradict each other.
Sharding propagate(const Graph& graph, Router& router, const ShardOptions& options);

/// Proves what localize relies on: every edge has a route, no partial value is consumed whole
/// without a reduction, operands of a node agree on the piece of every factor, states end where
/// they begin. BugError naming the edge.
void verify_sharding(const Graph& graph, const Sharding& sharding, Router& router);

/// Bytes per rank that the moves of a sharding receive over `axis`, each value moved once.
double moved_bytes(const Graph& graph, const Sharding& sharding, Router& router, AxisId axis);

/// The distinct pieces of a sharding, to tell which ranks are alike.
class PieceTable {
 public:
  /// `mesh` must outlive the table.
  PieceTable(const Graph& graph, const Sharding& sharding, const Mesh& mesh);
  /// Equal for ranks whose pieces have the same extents throughout.
  std::string key(int64_t rank) const;

 private:
  const Mesh& mesh_;
  std::vector<std::pair<Shape, Placement>> pieces_;
  uint32_t first_only_ = 0;  // axes whose first rank passes addends
};

/// One line per node with its strategy, placements and the moves of its operands (--dump shard).
std::string print_sharding(const Graph& graph, const Sharding& sharding, Router& router);

}  // namespace weft
