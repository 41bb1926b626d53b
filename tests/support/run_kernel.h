// Runs one kernel of a backend on test tensors, in an arena of that backend, between guard bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/host_tensor.h"
#include "weft/backend/backend.h"

namespace weft::test {

/// Output `second` uses the memory of input `first`.
using Alias = std::pair<int, int>;

struct KernelRun {
  std::vector<HostTensor> outputs;
  /// What the kernel did beside its task: "input 1 was changed", "bytes before output 0 …". Empty
  /// for a correct kernel.
  std::vector<std::string> faults;
};

/// Types of the operands -> the complete spec; outputs are inferred by the operator.
KernelSpec make_spec(OpKind op, const Attrs& attrs, const std::vector<HostTensor>& inputs);

/// Runs `spec` once. Outputs and workspace (exactly workspace_bytes) start as NaN patterns. The
/// operator's required aliases are always applied, `aliases` in addition.
KernelRun run_kernel(Backend& backend, const KernelSpec& spec,
                     const std::vector<HostTensor>& inputs, const std::vector<Alias>& aliases = {});

}  // namespace weft::test
