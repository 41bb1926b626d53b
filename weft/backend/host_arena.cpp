#include "weft/backend/host_arena.h"

#include <sys/mman.h>

#include <cerrno>

#include "weft/base/check.h"

namespace weft {
namespace {

class HostArena final : public DeviceArena {
 public:
  explicit HostArena(int64_t bytes) : bytes_(bytes), mapped_(static_cast<size_t>(bytes)) {
    WEFT_CHECK(bytes >= 0, "arena", "a size of {} bytes was asked for", bytes);
    if (mapped_ == 0) mapped_ = 1;  // mmap refuses 0; an empty arena still has an address
    void* memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      const int code = errno;
      throw ResourceError("arena", fmt::format("got \"{}\", expected {} bytes of memory; try a "
                                               "smaller micro_batch or memory.device",
                                               errno_text(code), bytes));
    }
    data_ = static_cast<std::byte*>(memory);
    // Huge pages: far fewer page faults at start and TLB misses in kernels. Advice only: where the
    // system has none, small pages do the same work.
    madvise(memory, mapped_, MADV_HUGEPAGE);
  }
  ~HostArena() override { munmap(data_, mapped_); }
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }
  bool made_zeroed() const override { return true; }

 private:
  int64_t bytes_;
  size_t mapped_;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceArena> allocate_host_arena(int64_t bytes) {
  return std::make_unique<HostArena>(bytes);
}

}  // namespace weft
