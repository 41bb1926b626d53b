// Logical tensors from the pieces of ranks, and back. An oracle of its own: it shares no code with
// the checkpoint and with the initial values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "weft/plan/plan.h"

namespace weft::test {

/// The piece of `whole` that the state holds, in the state's dtype.
HostTensor take_piece(const HostTensor& whole, const PlanState& state);

class Assembly {
 public:
  /// Adds what `rank` holds. An element that is there already must have the same bits.
  void add(const std::string& name, const PlanState& state, const HostTensor& piece, size_t rank);
  /// The tensors; what was wrong goes to `faults`: differing replicas, elements without a holder.
  Tensors finish(std::vector<std::string>& faults);

 private:
  struct Tensor {
    HostTensor value;
    std::vector<int> holder;  // per element: first rank that has it, -1 = none
  };
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> differences_;  // the first per tensor
};

}  // namespace weft::test
