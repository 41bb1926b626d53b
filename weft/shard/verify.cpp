#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "weft/base/check.h"
#include "weft/shard/pieces.h"
#include "weft/shard/propagate.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

constexpr const char* kWhere = "verify_sharding";

std::string node_text(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return fmt::format("node {} {} [{}] micro-batch {}", id, op_def(node.op).name, node.scope,
                     node.micro);
}

class Verifier {
 public:
  Verifier(const Graph& graph, const Sharding& sharding, Router& router)
      : graph_(graph), sharding_(sharding), router_(router), mesh_(router.mesh()) {}

  void run() {
    WEFT_CHECK(sharding_.nodes.size() == at(graph_.num_nodes()) &&
                   sharding_.values.size() == at(graph_.num_values()),
               kWhere, "got a sharding of another graph");
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      check_edges(id);
      check_factors(id);
      check_sums(id);
      check_outputs(id);
    }
    for (const auto& [name, id] : graph_.outputs()) {
      const Placement whole = whole_placement(graph_.type(id).shape.size());
      check_route("output " + name, id, whole);
    }
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue) continue;
      check_route("state " + state.name, state.result, sharding_.values[at(state.value)]);
    }
  }

 private:
  /// A route exists and follows the rules: what is partial is reduced before it counts as whole.
  void check_route(const std::string& what, ValueId id, const Placement& to) {
    const Placement& from = sharding_.values[at(id)];
    if (from == to) return;
    WEFT_CHECK((to.partial & ~from.partial) == 0, kWhere,
               "{}: {} would become partial over an axis it is not ({} to {})", what,
               graph_.value(id).name, placement_text(from, mesh_), placement_text(to, mesh_));
    uint32_t open = from.partial & ~to.partial;
    Placement here = from;
    for (const Move& move : router_.route(graph_.type(id), from, to).moves) {
      const bool reduces =
          move.kind == MoveKind::all_reduce || move.kind == MoveKind::reduce_scatter;
      WEFT_CHECK(here.is_partial(move.axis) == reduces, kWhere,
                 "{}: {} is {} over {} and takes the wrong move", what, graph_.value(id).name,
                 here.is_partial(move.axis) ? "partial" : "complete", mesh_.name(move.axis));
      if (reduces) open &= ~(1U << move.axis);
      here = move.after;
    }
    WEFT_CHECK(open == 0 && here == to, kWhere, "{}: {} ends as {}, expected {}", what,
               graph_.value(id).name, placement_text(here, mesh_), placement_text(to, mesh_));
  }

  void check_edges(NodeId id) {
    const Node& node = graph_.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      check_route(node_text(graph_, id), node.inputs[i], sharding_.nodes[at(id)].inputs[i]);
    }
  }

  /// Every operand holds the piece of a factor that the node computes, on every rank of an axis.
  void check_factors(NodeId id) {
    const Node& node = graph_.node(id);
    const ShardingRule& rule = sharding_.rules[at(id)];
    const NodePlacements& placements = sharding_.nodes[at(id)];
    for (int64_t rank = 0; rank < mesh_.world(); rank += step()) {
      const auto pieces = factor_pieces(rule, sharding_.strategies[at(id)], mesh_, rank);
      const auto check = [&](const ShardingRule::Dims& dims, ValueId value,
                             const Placement& placement) {
        if (value == kNoValue) return;
        const auto box = local_box(graph_.type(value).shape, placement, mesh_, rank);
        for (size_t i = 0; i < dims.size(); ++i) {
          if (dims[i].empty()) {
            WEFT_CHECK(placement.dims[i].axes.empty(), kWhere,
                       "{}: dim {} of {} is cut, expected whole", node_text(graph_, id), i,
                       graph_.value(value).name);
            continue;
          }
          const int lead = dims[i][0];
          const int64_t inner = elements_per_factor(rule, dims[i], lead);
          const CutPiece& piece = pieces[static_cast<size_t>(lead)];
          WEFT_CHECK(box[i].begin == piece.begin * inner && box[i].size == piece.size * inner,
                     kWhere,
                     "{}: dim {} of {} is [{}, +{}) on rank {}, expected factor {} [{}, +{})",
                     node_text(graph_, id), i, graph_.value(value).name, box[i].begin, box[i].size,
                     rank, rule.factors[static_cast<size_t>(lead)].name, piece.begin * inner,
                     piece.size * inner);
        }
      };
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        check(rule.inputs[i], node.inputs[i], placements.inputs[i]);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        check(rule.outputs[i], node.outputs[i], placements.outputs[i]);
      }
    }
  }

  /// Along every axis: partial operands where the strategy passes sums on, partial results where it
  /// makes them, flat cuts where it says so, and addends passed once where they would be summed.
  void check_sums(NodeId id) {
    const Node& node = graph_.node(id);
    const NodePlacements& placements = sharding_.nodes[at(id)];
    for (AxisId axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (mesh_.size(axis) == 1) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        check_operand(id, axis, node.inputs[i], placements.inputs[i],
                      sharding_.rules[at(id)].inputs[i], taken_as_partial(id, axis, i));
        const bool once = (placements.first_only[i] >> axis & 1U) != 0;
        WEFT_CHECK(once == added_once(id, axis, i), kWhere,
                   "{}: input {} is passed by {} of {}, expected {}", node_text(graph_, id), i,
                   once ? "the first rank" : "all ranks", mesh_.name(axis),
                   once ? "all ranks" : "the first rank");
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] == kNoValue) continue;
        const bool sum = choice(id, axis).kind == AxisChoice::Kind::linear ||
                         summed(id, axis, sharding_.rules[at(id)].outputs[i]);
        check_operand(id, axis, node.outputs[i], placements.outputs[i],
                      sharding_.rules[at(id)].outputs[i], sum);
      }
    }
  }

  const AxisChoice& choice(NodeId id, AxisId axis) const {
    return sharding_.strategies[at(id)][static_cast<size_t>(axis)];
  }

  /// Does the axis cut a reduce factor that these dims do not have?
  bool summed(NodeId id, AxisId axis, const ShardingRule::Dims& dims) const {
    const AxisChoice& made = choice(id, axis);
    if (made.kind != AxisChoice::Kind::factor) return false;
    const Factor& factor = sharding_.rules[at(id)].factors[static_cast<size_t>(made.factor)];
    const auto has = [&](const std::vector<int>& dim) {
      return std::find(dim.begin(), dim.end(), made.factor) != dim.end();
    };
    return factor.kind == FactorKind::reduce && std::none_of(dims.begin(), dims.end(), has);
  }

  /// A partial sum that the node passes on, or a part of its own piece of a factor.
  bool taken_as_partial(NodeId id, AxisId axis, size_t input) const {
    const ShardingRule& rule = sharding_.rules[at(id)];
    const AxisChoice& made = choice(id, axis);
    if (made.kind == AxisChoice::Kind::linear) return passes_partial(rule, input);
    return made.kind == AxisChoice::Kind::factor &&
           std::any_of(rule.parts.begin(), rule.parts.end(), [&](const PartInput& part) {
             return part.input == static_cast<int>(input) && part.factor == made.factor;
           });
  }

  bool added_once(NodeId id, AxisId axis, size_t input) const {
    const ShardingRule& rule = sharding_.rules[at(id)];
    const auto found = std::find(rule.addends.begin(), rule.addends.end(), static_cast<int>(input));
    if (found == rule.addends.end()) return false;
    if (choice(id, axis).kind == AxisChoice::Kind::linear) return !passes_partial(rule, input);
    return summed(id, axis, rule.inputs[input]);
  }

  void check_operand(NodeId id, AxisId axis, ValueId value, const Placement& placement,
                     const ShardingRule::Dims& dims, bool sum) const {
    const AxisChoice::Kind kind = choice(id, axis).kind;
    // Element by element with input 0: by factors, since scalars may have the same extents.
    const bool whole_shape = dims == sharding_.rules[at(id)].inputs[0];
    const bool output = graph_.value(value).producer == id;
    const bool flat = kind == AxisChoice::Kind::flat && whole_shape;
    const bool partial = sum || (kind == AxisChoice::Kind::flat && output && !whole_shape);
    const bool is_flat =
        std::find(placement.flat.begin(), placement.flat.end(), axis) != placement.flat.end();
    WEFT_CHECK(placement.is_partial(axis) == partial && is_flat == flat, kWhere,
               "{}: {} is {}, expected it {} over {}", node_text(graph_, id),
               graph_.value(value).name, placement_text(placement, mesh_),
               partial ? "partial" : (flat ? "cut flat" : "complete"), mesh_.name(axis));
  }

  /// Large meshes are sampled: the first ranks of the fastest axis and one further out.
  int64_t step() const { return mesh_.world() <= 16 ? 1 : mesh_.world() / 16 + 1; }

  void check_outputs(NodeId id) {
    const Node& node = graph_.node(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      WEFT_CHECK(sharding_.values[at(node.outputs[i])] == sharding_.nodes[at(id)].outputs[i],
                 kWhere, "{}: output {} is recorded as {}, the strategy gives {}",
                 node_text(graph_, id), i,
                 placement_text(sharding_.values[at(node.outputs[i])], mesh_),
                 placement_text(sharding_.nodes[at(id)].outputs[i], mesh_));
    }
  }

  const Graph& graph_;
  const Sharding& sharding_;
  Router& router_;
  const Mesh& mesh_;
};

std::string move_text(const Move& move, const Mesh& mesh) {
  static constexpr const char* kNames[] = {"slice", "all_gather", "reduce_scatter", "all_reduce",
                                           "all_to_all"};
  return fmt::format("{}({})", kNames[static_cast<size_t>(move.kind)], mesh.name(move.axis));
}

}  // namespace

void verify_sharding(const Graph& graph, const Sharding& sharding, Router& router) {
  Verifier(graph, sharding, router).run();
}

double moved_bytes(const Graph& graph, const Sharding& sharding, Router& router, AxisId axis) {
  std::set<std::pair<ValueId, std::string>> moved;
  double bytes = 0;
  const auto count = [&](ValueId id, const Placement& to) {
    const Placement& from = sharding.values[at(id)];
    if (from == to) return;
    for (const Move& move : router.route(graph.type(id), from, to).moves) {
      if (move.axis != axis) continue;
      if (moved.emplace(id, placement_text(move.after, router.mesh())).second) bytes += move.bytes;
    }
  };
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) count(node.inputs[i], sharding.nodes[at(id)].inputs[i]);
    }
  }
  for (const State& state : graph.states()) {
    if (state.result != kNoValue) count(state.result, sharding.values[at(state.value)]);
  }
  return bytes;
}

PieceTable::PieceTable(const Graph& graph, const Sharding& sharding, const Mesh& mesh)
    : mesh_(mesh) {
  std::set<std::string> seen;
  const auto add = [&](const TensorType& type, const Placement& placement) {
    if (!seen.insert(shape_text(type.shape) + placement_text(placement, mesh)).second) return;
    pieces_.emplace_back(type.shape, placement);
  };
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.kind == ValueKind::node && value.producer == kNoNode) continue;
    add(value.type, sharding.values[at(id)]);
  }
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    const NodePlacements& placements = sharding.nodes[at(id)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      add(graph.type(node.inputs[i]), placements.inputs[i]);
      first_only_ |= placements.first_only[i];
    }
  }
}

std::string PieceTable::key(int64_t rank) const {
  std::string key;
  for (const auto& [shape, placement] : pieces_) {
    for (const int64_t extent : local_shape(shape, placement, mesh_, rank)) {
      key += fmt::format("{},", extent);
    }
  }
  for (AxisId axis = 0; axis < mesh_.num_axes(); ++axis) {
    if ((first_only_ >> axis & 1U) != 0) key += mesh_.coord(rank, axis) == 0 ? "F" : "-";
  }
  return key;
}

std::string print_sharding(const Graph& graph, const Sharding& sharding, Router& router) {
  const Mesh& mesh = router.mesh();
  std::string text;
  for (const State& state : graph.states()) {
    text += fmt::format("state {} {} {}\n", state.name, shape_text(state.type.shape),
                        placement_text(sharding.values[at(state.value)], mesh));
  }
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    text += fmt::format("{} {} [{}] {}\n", id, op_def(node.op).name, node.scope,
                        strategy_text(sharding.rules[at(id)], sharding.strategies[at(id)], mesh));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNoValue) continue;
      const Placement& from = sharding.values[at(input)];
      const Placement& to = sharding.nodes[at(id)].inputs[i];
      text += fmt::format("    {} {}", graph.value(input).name, placement_text(to, mesh));
      if (from != to) {
        const Route& route = router.route(graph.type(input), from, to);
        text += fmt::format(" from {} by", placement_text(from, mesh));
        for (const Move& move : route.moves) text += " " + move_text(move, mesh);
        text += fmt::format(", {:.0f} bytes", route.bytes);
      }
      text += "\n";
    }
    for (const ValueId output : node.outputs) {
      if (output == kNoValue) continue;
      text += fmt::format("    -> {} {}\n", graph.value(output).name,
                          placement_text(sharding.values[at(output)], mesh));
    }
  }
  return text;
}

}  // namespace weft
