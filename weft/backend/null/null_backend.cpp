// The null backend: takes every kernel and computes nothing. Memory and copies are real, so plans
// run end to end and their bytes can be checked; the contents of results are undefined.
#include <cstring>

#include "weft/backend/backend_entries.h"
#include "weft/backend/host_arena.h"

namespace weft {
namespace {

class NullKernel final : public Kernel {
 public:
  void run(const KernelArgs&) override {}
};

class NullBackend final : public Backend {
 public:
  bool supports(const KernelSpec&) const override { return true; }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
  std::string_view name() const override { return "null"; }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override {
    return allocate_host_arena(bytes);
  }
  std::unique_ptr<Kernel> prepare(const KernelSpec&) override {
    return std::make_unique<NullKernel>();
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
  }
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(const BackendOptions&) {
  return std::make_unique<NullBackend>();
}

}  // namespace weft
