// What the files of the cpu backend share: a kernel that knows its workspace, operand access by
// index, and one factory per operator. Every kernel accumulates in f32 or wider. Kernels keep only
// sizes and function pointers; all scratch memory comes from the caller.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/backend/backend.h"
#include "weft/base/check.h"
#include "weft/base/dtype.h"

namespace weft::cpu {

class CpuKernel : public Kernel {
 public:
  /// Exact scratch bytes that run() may touch.
  virtual int64_t workspace_bytes() const { return 0; }
};

using KernelPtr = std::unique_ptr<CpuKernel>;

/// Input / output `i` is given; trailing absent operands may be left out altogether.
inline bool has_input(const KernelSpec& spec, size_t i) {
  return i < spec.inputs.size() && spec.inputs[i].present();
}
inline bool has_output(const KernelSpec& spec, size_t i) {
  return i < spec.outputs.size() && spec.outputs[i].present();
}

/// Operand pointers; an absent operand is nullptr.
template <class T = void>
const T* in(const KernelArgs& args, size_t i) {
  return i < args.inputs.size() ? static_cast<const T*>(args.inputs[i]) : nullptr;
}
template <class T = void>
T* out(const KernelArgs& args, size_t i) {
  return i < args.outputs.size() ? static_cast<T*>(args.outputs[i]) : nullptr;
}

/// First index of the activation tables (elementwise_isa.h) for attribute `kind`.
int activation_kind(const KernelSpec& spec);

// One factory per operator; each file of the folder defines those it implements.
#define WEFT_CPU_KERNEL(name) KernelPtr make_##name(const KernelSpec& spec, int threads);
#include "weft/backend/cpu/kernels.def"
#undef WEFT_CPU_KERNEL

}  // namespace weft::cpu
