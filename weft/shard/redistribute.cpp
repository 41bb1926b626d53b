#include "weft/shard/redistribute.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "weft/base/check.h"
#include "weft/ops/collective.h"
#include "weft/shard/pieces.h"

namespace weft {
namespace {

/// A call has a price of its own: of two routes with equal bytes the shorter one wins.
constexpr double kBytesPerCall = 64;

bool has(const std::vector<AxisId>& axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// All steps that may lead from a placement towards the target.
class Neighbours {
 public:
  Neighbours(const TensorType& type, const Placement& target, const Mesh& mesh)
      : type_(type), target_(target), mesh_(mesh) {}

  std::vector<Move> of(const Placement& from) const {
    std::vector<Move> moves;
    for (AxisId axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (mesh_.size(axis) == 1) continue;
      if (from.is_partial(axis)) {
        reduce(from, axis, moves);
      } else if (from.cuts(axis)) {
        gather(from, axis, moves);
      } else {
        cut(from, axis, MoveKind::slice, 0.0, moves);
      }
    }
    return moves;
  }

 private:
  double bytes(const Placement& placement) const { return local_bytes(type_, placement, mesh_); }
  double others(AxisId axis) const { return static_cast<double>(mesh_.size(axis) - 1); }

  void add(MoveKind kind, AxisId axis, int dim, Placement after, double cost,
           std::vector<Move>& moves) const {
    moves.push_back({kind, axis, dim, -1, canonical(std::move(after), type_.shape, mesh_), cost});
  }

  void reduce(const Placement& from, AxisId axis, std::vector<Move>& moves) const {
    Placement summed = from;
    summed.partial &= ~(1U << axis);
    const double piece = bytes(from) / static_cast<double>(mesh_.size(axis));
    if (from.reduction == Reduction::sum) {
      cut(summed, axis, MoveKind::reduce_scatter, piece * others(axis), moves);
    }
    add(MoveKind::all_reduce, axis, -1, summed, 2 * piece * others(axis), moves);
  }

  /// Are the axes that cut dim `i` already the first ones of a cut with the target's blocks?
  bool fits_target(const Placement& from, size_t i) const {
    Placement other = from;
    if (!other.dims[i].axes.empty()) other.dims[i].block = target_.dims[i].block;
    return canonical(std::move(other), type_.shape, mesh_).dims[i] == from.dims[i];
  }

  /// Appends `axis` where the target has it.
  void cut(const Placement& from, AxisId axis, MoveKind kind, double cost,
           std::vector<Move>& moves) const {
    if (from.flat.empty()) {
      for (size_t i = 0; i < from.dims.size(); ++i) {
        if (!has(target_.dims[i].axes, axis) || !fits_target(from, i)) continue;
        Placement after = from;
        after.dims[i].axes.push_back(axis);
        after.dims[i].block = target_.dims[i].block;
        add(kind, axis, static_cast<int>(i), std::move(after), cost, moves);
      }
    }
    if (has(target_.flat, axis)) {
      Placement after = from;
      after.flat.push_back(axis);
      add(kind, axis, -1, std::move(after), cost, moves);
    }
  }

  void gather(const Placement& from, AxisId axis, std::vector<Move>& moves) const {
    if (!from.flat.empty()) {
      if (from.flat.back() != axis) return;
      Placement after = from;
      after.flat.pop_back();
      add(MoveKind::all_gather, axis, -1, std::move(after), bytes(from) * others(axis), moves);
      return;
    }
    for (size_t i = 0; i < from.dims.size(); ++i) {
      if (from.dims[i].axes.empty() || from.dims[i].axes.back() != axis) continue;
      Placement whole = from;
      whole.dims[i].axes.pop_back();
      if (whole.dims[i].axes.empty()) whole.dims[i].block = 1;
      add(MoveKind::all_gather, axis, static_cast<int>(i), whole, bytes(from) * others(axis),
          moves);
      exchange(whole, axis, i, bytes(from), moves);
    }
  }

  void exchange(const Placement& whole, AxisId axis, size_t gathered, double local,
                std::vector<Move>& moves) const {
    for (size_t i = 0; i < whole.dims.size(); ++i) {
      if (i == gathered || !has(target_.dims[i].axes, axis) || !fits_target(whole, i)) continue;
      Placement after = whole;
      after.dims[i].axes.push_back(axis);
      after.dims[i].block = target_.dims[i].block;
      const double cost = local * others(axis) / static_cast<double>(mesh_.size(axis));
      add(MoveKind::all_to_all, axis, static_cast<int>(i), std::move(after), cost, moves);
      moves.back().gather_dim = static_cast<int>(gathered);
    }
  }

  const TensorType& type_;
  const Placement& target_;
  const Mesh& mesh_;
};

/// Dijkstra; placements reachable towards one target are few.
Route search(const TensorType& type, const Placement& from, const Placement& to, const Mesh& mesh) {
  struct Reached {
    double cost = 0;
    std::string previous;
    Move move;
    Placement placement;
  };
  const Neighbours neighbours(type, to, mesh);
  const std::string goal = placement_key(to);
  std::map<std::string, Reached> reached;
  std::set<std::pair<double, std::string>> open;
  reached[placement_key(from)].placement = from;
  open.emplace(0.0, placement_key(from));
  while (!open.empty()) {
    const auto [cost, key] = *open.begin();
    open.erase(open.begin());
    if (key == goal) break;
    if (cost > reached[key].cost) continue;
    const Placement here = reached[key].placement;
    for (Move& move : neighbours.of(here)) {
      const double next = cost + move.bytes + kBytesPerCall;
      const std::string next_key = placement_key(move.after);
      const auto at = reached.find(next_key);
      if (at != reached.end() && at->second.cost <= next) continue;
      Placement after = move.after;
      reached[next_key] = {next, key, std::move(move), std::move(after)};
      open.emplace(next, next_key);
    }
  }
  WEFT_CHECK(reached.contains(goal), "shard", "no way from {} to {} of a value {}",
             placement_text(from, mesh), placement_text(to, mesh), shape_text(type.shape));
  Route route;
  for (std::string key = goal; key != placement_key(from); key = reached[key].previous) {
    route.moves.push_back(reached[key].move);
    route.bytes += reached[key].move.bytes;
  }
  std::reverse(route.moves.begin(), route.moves.end());
  return route;
}

}  // namespace

const Route& Router::route(const TensorType& type, const Placement& from, const Placement& to) {
  const std::string key =
      fmt::format("{}{}>{}:{}", static_cast<int>(type.dtype), shape_text(type.shape),
                  placement_key(from), placement_key(to));
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, search(type, from, to, mesh_)).first->second;
}

ValueId emit_move(Graph& graph, ValueId value, const TensorType& type, const Placement& before,
                  const Move& move, const Mesh& mesh, int64_t rank) {
  Attrs attrs = {{"axis", mesh.name(move.axis)},
                 {"ways", mesh.size(move.axis)},
                 {"index", mesh.coord(rank, move.axis)}};
  const auto block = [](const Placement& placement, int dim) {
    return dim < 0 ? int64_t{1} : placement.dims[static_cast<size_t>(dim)].block;
  };
  switch (move.kind) {
    case MoveKind::slice: {
      const Shape local = graph.type(value).shape;
      const int64_t extent =
          move.dim < 0 ? num_elements(local) : local[static_cast<size_t>(move.dim)];
      const CutPiece piece = cut_piece(extent, block(move.after, move.dim), mesh.size(move.axis),
                                       mesh.coord(rank, move.axis));
      return graph.add(OpKind::slice, {value},
                       {{"dim", int64_t{move.dim}}, {"begin", piece.begin}, {"size", piece.size}});
    }
    case MoveKind::all_reduce:
      if (before.reduction == Reduction::logsumexp) {
        attrs.set("reduction", std::string("logsumexp"));
      }
      return graph.add(OpKind::all_reduce, {value}, std::move(attrs));
    case MoveKind::reduce_scatter:
      attrs.set("dim", int64_t{move.dim});
      attrs.set("block", block(move.after, move.dim));
      return graph.add(OpKind::reduce_scatter, {value}, std::move(attrs));
    case MoveKind::all_gather:
      attrs.set("dim", int64_t{move.dim});
      attrs.set("block", block(before, move.dim));
      attrs.set("shape", extents_attr(local_shape(type.shape, move.after, mesh, rank)));
      return graph.add(OpKind::all_gather, {value}, std::move(attrs));
    case MoveKind::all_to_all: {
      const Shape after = local_shape(type.shape, move.after, mesh, rank);
      attrs.set("dim", int64_t{move.dim});
      attrs.set("block", block(move.after, move.dim));
      attrs.set("gather_dim", int64_t{move.gather_dim});
      attrs.set("gather_extent", after[static_cast<size_t>(move.gather_dim)]);
      attrs.set("gather_block", block(before, move.gather_dim));
      return graph.add(OpKind::all_to_all, {value}, std::move(attrs));
    }
  }
  throw BugError("shard", "unknown move");
}

}  // namespace weft
