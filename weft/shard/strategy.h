// How one node is cut: for every mesh axis what it does to the factors of the node's rule. Plain
// data and pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/shard/mesh.h"

namespace weft {

struct AxisChoice {
  enum class Kind : uint8_t {
    replicate,  // every rank of the axis computes the same
    factor,     // the axis cuts factor `factor` in whole blocks of `block` elements of the factor
    flat,       // the axis cuts the flattening of the operands
    linear,     // partial operands give partial results
  } kind = Kind::replicate;
  int factor = -1;
  int64_t block = 1;
  bool operator==(const AxisChoice&) const = default;
};

/// One choice per mesh axis.
using NodeStrategy = std::vector<AxisChoice>;

/// What a strategy asks of the operands and gives; one entry per operand, absent ones empty.
struct NodePlacements {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  /// Bit per axis: the input is passed by the first rank of the axis only (bias, residual).
  std::vector<uint32_t> first_only;
};

/// A node with what sharding needs to know of it.
struct NodeView {
  const OpDef* def = nullptr;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  ShardingRule rule;
};
NodeView view_node(const Graph& graph, const Node& node);

/// Canonical placements of a strategy.
NodePlacements place_operands(const NodeView& node, const NodeStrategy& strategy, const Mesh& mesh);

/// Is this input partial when the axis passes partial results on?
bool passes_partial(const ShardingRule& rule, size_t input);
/// Can the axis cut this factor: it is no `whole` factor and leads every dim it is part of.
bool may_cut(const ShardingRule& rule, int factor);
/// Elements of a dim per element of `factor` in it; 0 when the factor is not in the dim.
int64_t elements_per_factor(const ShardingRule& rule, const std::vector<int>& dim, int factor);
/// Range of every factor that `rank` computes.
std::vector<CutPiece> factor_pieces(const ShardingRule& rule, const NodeStrategy& strategy,
                                    const Mesh& mesh, int64_t rank);
/// "op:f/64 data:b", for dumps.
std::string strategy_text(const ShardingRule& rule, const NodeStrategy& strategy, const Mesh& mesh);

}  // namespace weft
