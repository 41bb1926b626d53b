// Device memory that is host memory: the arena of every backend that computes on the CPU.
#pragma once

#include <memory>

#include "weft/backend/backend.h"

namespace weft {

/// MappedMemory of exactly `bytes` >= 0: zeroed, page-aligned, in huge pages where there are any.
/// Throws ResourceError with the number when the system refuses, BugError for a negative size.
std::unique_ptr<DeviceArena> allocate_host_arena(int64_t bytes);

}  // namespace weft
