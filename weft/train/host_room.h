// How much host memory this process may still take, and what sets the limit.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

struct HostRoom {
  int64_t bytes = INT64_MAX;
  std::string limit;  // "free memory", "control group /a", "ulimit -v", "ulimit -d"; "" = unknown

  /// Takes over `other` when it is tighter.
  void tighten(const HostRoom& other) {
    if (other.bytes < bytes) *this = other;
  }
};

/// Of the machine: free memory, and the limits of this process's control group and of those above
/// it. Cached files that the kernel would give up count as free.
HostRoom machine_room();
/// Of this process alone: its address space and data segment (ulimit -v and -d).
HostRoom process_room();

/// Room under the memory limits of control group `group` ("/a/b") and of all above it, below the
/// folder `mount` of version 2. Unlimited where nothing is said.
HostRoom control_group_room(const std::string& mount, const std::string& group);

}  // namespace weft
