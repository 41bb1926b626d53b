// How an operator may be cut over a mesh, as data: einsum-like factors (the idea of Shardy's
// propagation rules). Propagation and collective insertion are written once, over factors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/ir/placement.h"

namespace weft {

enum class FactorKind : uint8_t {
  pass,    // may be cut: the piece of the output needs the same piece of the input
  reduce,  // may be cut: outputs become partial sums
  whole,   // may not be cut
};

struct Factor {
  std::string name;  // "b" is the batch and "s" the sequence wherever they appear
  int64_t size = 1;
  FactorKind kind = FactorKind::pass;
  Reduction reduction = Reduction::sum;  // of a reduce factor
};

/// Input `input` is taken as a part: where `factor` is cut, a rank reads only what its own piece of
/// the factor gave, from a value that is a partial sum over the same axis.
struct PartInput {
  int input = 0;
  int factor = 0;
};

/// Per operand, per dim: the factors of that dim from major to minor, as indices into `factors`.
/// An absent optional operand has no dims.
struct ShardingRule {
  using Dims = std::vector<std::vector<int>>;

  std::vector<Factor> factors;
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  /// Linear in all its inputs together: partial inputs give partial outputs (add, concat).
  bool linear = false;
  /// With `linear`: only these inputs are partial then, the others are whole (empty: all are).
  std::vector<int> linear_inputs;
  std::vector<PartInput> parts;
  /// Works element by element: operands that have the shape of input 0 may be cut flattened.
  bool flat = false;
  /// Optional inputs that are added once to an output (bias, residual): when a reduce factor is cut
  /// only the first rank of the axis passes them.
  std::vector<int> addends;
};

}  // namespace weft
