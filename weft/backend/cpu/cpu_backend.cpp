// The cpu backend: every operator but the collectives in f32, bf16 and f16, vectorised, on a team
// of threads.
#include <algorithm>
#include <cstring>

#include "weft/backend/backend_entries.h"
#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/host_arena.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

struct Entry {
  OpKind op;
  std::string_view name;
  cpu::KernelPtr (*make)(const KernelSpec& spec, int threads);
};

constexpr Entry kKernels[] = {
#define WEFT_CPU_KERNEL(name) {OpKind::name, #name, &cpu::make_##name},
#include "weft/backend/cpu/kernels.def"
#undef WEFT_CPU_KERNEL
};
constexpr size_t kElsewhere = 6;  // run by the communicator (4) or moved by the session (2)
static_assert(std::size(kKernels) + kElsewhere == kNumOps,
              "kernels.def must name every other operator once");

const Entry* find_kernel(OpKind op) {
  for (const Entry& entry : kKernels) {
    if (entry.op == op) return &entry;
  }
  return nullptr;
}

/// Operand dtypes of all operators but cast and the updates.
bool known_dtype(const TensorType& type) {
  return !type.present() || (is_floating(type.dtype) && type.dtype != DType::f64) ||
         type.dtype == DType::i32 || type.dtype == DType::i64;
}

bool sums_in_f64(OpKind op) { return op == OpKind::sum_squares || op == OpKind::verdict; }

bool supported(const KernelSpec& spec) {
  if (find_kernel(spec.op) == nullptr || spec.inputs.empty() || spec.outputs.empty()) return false;
  const auto floating = [](const TensorType& type) {
    return !type.present() || is_floating(type.dtype);
  };
  if (spec.op == OpKind::cast) return floating(spec.inputs[0]) && floating(spec.outputs[0]);
  if (spec.op == OpKind::adamw || spec.op == OpKind::sgd) {
    // The copy may have any floating dtype.
    return std::ranges::all_of(spec.inputs, known_dtype) &&
           std::ranges::all_of(spec.outputs, floating) && spec.outputs[0].dtype == DType::f32;
  }
  const auto fits = [&](const TensorType& type) {
    return known_dtype(type) || (type.dtype == DType::f64 && sums_in_f64(spec.op));
  };
  return std::ranges::all_of(spec.inputs, fits) && std::ranges::all_of(spec.outputs, fits);
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options) : threads_(std::max(options.threads, 1)) {}

  bool supports(const KernelSpec& spec) const override { return supported(spec); }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return make(spec)->workspace_bytes();
  }
  std::string_view name() const override { return "cpu"; }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override {
    return allocate_host_arena(bytes);
  }
  std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override { return make(spec); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
  }

 private:
  cpu::KernelPtr make(const KernelSpec& spec) const {
    const Entry* entry = find_kernel(spec.op);
    WEFT_CHECK(supports(spec), "cpu", "no kernel for operator {}",
               entry != nullptr ? entry->name : "?");
    return entry->make(spec, threads_);
  }

  int threads_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace weft
