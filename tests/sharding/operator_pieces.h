// Computes an operator piece by piece, as its ShardingRule says the ranks of a mesh may, and joins
// the results: in f64 on ref, one process, no mesh.
#pragma once

#include <string>
#include <vector>

#include "tests/cases/cases.h"
#include "weft/ir/sharding_rule.h"

namespace weft::test {

/// A case in f64 with its rule, and the outputs of the whole.
struct RuledCase {
  const OpCase* op_case = nullptr;
  std::vector<HostTensor> inputs;
  std::vector<HostTensor> outputs;
  ShardingRule rule;
};

RuledCase ruled_case(const OpCase& op_case, Backend& ref);

/// Factor `factor` cut into contiguous ranges of its elements, which may be empty.
struct FactorCut {
  int factor = 0;
  std::vector<CutPiece> pieces;
};

/// Every combination of the pieces of `cuts` (different factors): inputs cut, attributes localized,
/// outputs of a cut dim put one behind the other and partial ones combined. Returns why the result
/// is not that of the whole, or "".
std::string check_pieces(const RuledCase& ruled, const std::vector<FactorCut>& cuts, Backend& ref);
/// The same for a cut of the flattening of the operands that have the factors of input 0.
std::string check_flat(const RuledCase& ruled, const std::vector<CutPiece>& pieces, Backend& ref);
/// The same for inputs that are each the sum of `ways` random parts.
std::string check_linear(const RuledCase& ruled, int ways, Backend& ref);

/// The factor occurs in one of these dims.
bool has_factor(const ShardingRule::Dims& dims, int factor);

}  // namespace weft::test
