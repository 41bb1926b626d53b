// How an operator may be cut over a mesh, as data: einsum-like factors (the idea of Shardy's
// propagation rules). Propagation and collective insertion are written once, over factors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class FactorKind : uint8_t {
  pass,    // may be cut: the piece of the output needs the same piece of the input
  reduce,  // may be cut: outputs become partial sums
  whole,   // may not be cut
};

struct Factor {
  std::string name;
  int64_t size = 1;
  FactorKind kind = FactorKind::pass;
};

/// Per operand, per dim: the factors of that dim from major to minor, as indices into `factors`.
/// An absent optional operand has no dims.
struct ShardingRule {
  using Dims = std::vector<std::vector<int>>;

  std::vector<Factor> factors;
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
};

}  // namespace weft
