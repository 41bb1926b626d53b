#include "weft/base/mapped_memory.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "weft/base/check.h"
#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

MappedMemory::MappedMemory(const char* where, int64_t bytes) : bytes_(bytes) {
  WEFT_CHECK(bytes >= 0, where, "memory of {} bytes was asked for", bytes);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // mmap refuses 0; empty memory still has an address.
  mapped_ = (std::max<size_t>(static_cast<size_t>(bytes), 1) + page - 1) / page * page;
  // Kernels before 6.7 place a mapping at any page: more is mapped and the ends given back.
  const size_t spare = mapped_ >= kHugePage ? kHugePage : 0;
  void* memory =
      mmap(nullptr, mapped_ + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    throw ResourceError(where, fmt::format("got \"{}\", expected {} bytes of memory; try a smaller "
                                           "micro_batch or memory.device",
                                           errno_text(code), bytes));
  }
  auto* start = static_cast<std::byte*>(memory);
  const size_t before =
      spare == 0 ? 0 : (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  if (before > 0) munmap(start, before);
  if (spare > before) munmap(start + before + mapped_, spare - before);
  data_ = start + before;
  // Advice only: where the system has none, small pages do the same work.
  madvise(data_, mapped_, MADV_HUGEPAGE);
}

MappedMemory::~MappedMemory() { munmap(data_, mapped_); }

}  // namespace weft
