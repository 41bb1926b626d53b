// The reference backend: every operator but the collectives, every floating dtype, one thread.
#include <algorithm>
#include <array>
#include <cstring>

#include "weft/backend/backend_entries.h"
#include "weft/backend/host_arena.h"
#include "weft/backend/ref/ref_kernel.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

struct Entry {
  OpKind op;
  std::string_view name;
  ref::RefKernel (*kernel)();
};

constexpr Entry kKernels[] = {
#define WEFT_REF_KERNEL(name) {OpKind::name, #name, &ref::name##_kernel},
#include "weft/backend/ref/kernels.def"
#undef WEFT_REF_KERNEL
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

bool known_dtype(const TensorType& type) {
  return !type.present() || is_floating(type.dtype) || type.dtype == DType::i32 ||
         type.dtype == DType::i64;
}

class BoundKernel final : public Kernel {
 public:
  BoundKernel(ref::RefKernel kernel, KernelSpec spec) : kernel_(kernel), spec_(std::move(spec)) {}

  void run(const KernelArgs& args) override { kernel_.run(ref::Call(spec_, args)); }

 private:
  ref::RefKernel kernel_;
  KernelSpec spec_;
};

class RefBackend final : public Backend {
 public:
  bool supports(const KernelSpec& spec) const override {
    return find_kernel(spec.op) != nullptr && std::ranges::all_of(spec.inputs, known_dtype) &&
           std::ranges::all_of(spec.outputs, known_dtype);
  }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    const Entry* entry = find_kernel(spec.op);
    if (entry == nullptr || entry->kernel().workspace == nullptr) return 0;
    return entry->kernel().workspace(spec) * static_cast<int64_t>(sizeof(double));
  }
  std::string_view name() const override { return "ref"; }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override {
    return allocate_host_arena(bytes);
  }
  std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
    const Entry* entry = find_kernel(spec.op);
    WEFT_CHECK(entry != nullptr && supports(spec), "ref", "no kernel for operator {}",
               entry != nullptr ? entry->name : "?");
    return std::make_unique<BoundKernel>(entry->kernel(), spec);
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
  }
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(const BackendOptions&) {
  return std::make_unique<RefBackend>();
}

}  // namespace weft
