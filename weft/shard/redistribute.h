// From one placement of a value to another: the cheapest sequence of collectives and slices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/shard/mesh.h"

namespace weft {

enum class MoveKind : uint8_t { slice, all_gather, reduce_scatter, all_reduce, all_to_all };

/// One step; dim -1 is the flattening.
struct Move {
  MoveKind kind{};
  AxisId axis = 0;
  int dim = -1;  // that becomes cut (slice, reduce_scatter, all_to_all) or whole (all_gather)
  int gather_dim = -1;  // all_to_all: the dim that becomes whole
  Placement after;      // placement once the step is done
  double bytes = 0;     // received per rank, on average
};

struct Route {
  std::vector<Move> moves;
  double bytes = 0;
};

/// Finds routes and remembers them. Not thread-safe; `mesh` must outlive it.
class Router {
 public:
  explicit Router(const Mesh& mesh) : mesh_(mesh) {}

  /// Cheapest route between canonical placements. BugError when there is none, for example towards
  /// a partial placement.
  const Route& route(const TensorType& type, const Placement& from, const Placement& to);
  const Mesh& mesh() const { return mesh_; }

 private:
  const Mesh& mesh_;
  std::map<std::string, Route> known_;
};

/// Emits the nodes of one move into the graph of `rank` and returns the moved value. `before` is
/// the placement `value` has; `type` its logical type.
ValueId emit_move(Graph& graph, ValueId value, const TensorType& type, const Placement& before,
                  const Move& move, const Mesh& mesh, int64_t rank);

}  // namespace weft
