// The backend contract: memory, kernels by (operator, types), and "can you run this?". One
// Backend object serves one rank. Kernels run on the calling thread and its worker team; two
// kernels of one backend run at the same time only when the executor puts them on two lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weft/ir/kernel.h"

namespace weft {

/// The memory that plays (or is) the device. Freed on destruction.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;
  virtual std::byte* data() = 0;  // 4096-byte aligned
  virtual int64_t bytes() const = 0;
  /// Whether every byte was 0 when the arena was made; initial zeros then need no write.
  virtual bool made_zeroed() const { return false; }
};

class Backend : public KernelSupport {
 public:
  virtual std::string_view name() const = 0;
  /// Reserves exactly `bytes`; ResourceError with the numbers when that fails.
  virtual std::unique_ptr<DeviceArena> allocate(int64_t bytes) = 0;
  /// Prepares a kernel; BugError when supports(spec) is false.
  virtual std::unique_ptr<Kernel> prepare(const KernelSpec& spec) = 0;
  /// Copies between host memory and the arena, complete on return. Safe from several threads at
  /// once on ranges that do not overlap.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
};

struct BackendOptions {
  int threads = 1;  // worker team of each lane that computes
};

/// Makes the backend `name` ("ref", "cpu", "null", "cuda"). UsageError for an unknown name,
/// ResourceError when it was not built in.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options);

}  // namespace weft
