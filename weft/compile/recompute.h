// Activation recompute: values of a layer's forward pass that the backward pass reads are dropped
// and made again, right before they are read, by copies of the nodes that made them. The copies are
// the same kernels on the same operands (dropout keeps its site, seed and sample keys), so no bit
// of a result changes. docs/recompute.md.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "weft/ir/graph.h"
#include "weft/plan/machine.h"

namespace weft {

/// What to make again. Depends on names alone, so that all ranks of a job choose alike however
/// unequal their pieces are: their collectives must stay in one order.
struct RecomputeChoice {
  /// > 0: everything inside segments of that many layers; what crosses a border stays.
  int64_t every = 0;
  /// With every = 0: the values that nodes of these scopes make.
  std::set<std::string> scopes;

  bool empty() const { return every == 0 && scopes.empty(); }
};

/// Bounds of a selective choice.
struct SelectiveBounds {
  double drop = 0.55;  // a layer stops when this share of its bytes saved for backward is gone
  double cost = 0.08;  // never add more than this share of the predicted step
};

/// Scopes of each layer in the order of bytes per added second: norms, activations, glu and rotary
/// positions cost next to nothing, then come attention and small matmuls. `graph` is the fused step
/// graph on whole shapes; `machine` prices its kernels.
RecomputeChoice choose_selective(const Graph& graph, const MachineSpec& machine,
                                 const SelectiveBounds& bounds = {});

/// Adds the copies, marked Node::recomputed, and lets the backward pass read them. Collectives that
/// lie within the dropped part are repeated; weights gathered for the forward pass are gathered
/// once for copies and backward together. Embeddings, head and loss are in no layer and stay. With
/// `every`, a segment is left alone when no other layer runs between its forward and its backward
/// pass: it could free nothing for anybody.
void recompute(Graph& graph, const RecomputeChoice& choice);

}  // namespace weft
