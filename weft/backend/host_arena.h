// Device memory that is host memory: the arena of every backend that computes on the CPU.
#pragma once

#include <memory>

#include "weft/backend/backend.h"

namespace weft {

/// Maps exactly `bytes` (rounded up to pages by the system) of zeroed private memory, 4096-byte
/// aligned; pages become resident when first written. Throws ResourceError with the number when
/// the system refuses, BugError for a negative size. The arena unmaps itself on destruction.
std::unique_ptr<DeviceArena> allocate_host_arena(int64_t bytes);

}  // namespace weft
