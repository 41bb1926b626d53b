// What the compile half asks of a backend, and what the run half gives it: one kernel, described
// by its operator, attributes and operand types.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/ir/op_def.h"

namespace weft {

struct KernelSpec {
  OpKind op{};
  Attrs attrs;
  std::vector<TensorType> inputs;  // absent optional operands have dtype none
  std::vector<TensorType> outputs;
};

/// The part of a backend that planning needs; no device is touched.
class KernelSupport {
 public:
  virtual ~KernelSupport() = default;
  /// Can this backend run the kernel?
  virtual bool supports(const KernelSpec& spec) const = 0;
  /// Exact scratch bytes of the kernel, 64-byte aligned when bound; charged to the plan.
  virtual int64_t workspace_bytes(const KernelSpec& spec) const = 0;
};

/// Pointers of one execution, in operand order; absent operands are nullptr.
struct KernelArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;
};

/// A kernel bound to shapes and attributes. run() never allocates and may be called many times.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const KernelArgs& args) = 0;
};

}  // namespace weft
