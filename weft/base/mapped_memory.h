// Large memory straight from the system, in huge pages where there are any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

/// Zeroed private memory of exactly `bytes` >= 0 (the system rounds up to pages), aligned to a
/// page, from 2 MiB on to 2 MiB, with advice to use huge pages: fewer faults at start, fewer TLB
/// misses in kernels, and disk transfers with few segments (a device splits a request of 256 small
/// pages). Pages become resident when first written. Owns the mapping; not copied or moved. Throws
/// ResourceError "[where] got …, expected … bytes of memory" when the system refuses.
class MappedMemory {
 public:
  MappedMemory(const char* where, int64_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  size_t mapped_;
  std::byte* data_ = nullptr;
};

}  // namespace weft
