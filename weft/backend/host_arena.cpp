#include "weft/backend/host_arena.h"

#include "weft/base/mapped_memory.h"

namespace weft {
namespace {

class HostArena final : public DeviceArena {
 public:
  explicit HostArena(int64_t bytes) : memory_("arena", bytes) {}

  std::byte* data() override { return memory_.data(); }
  int64_t bytes() const override { return memory_.bytes(); }
  bool made_zeroed() const override { return true; }

 private:
  MappedMemory memory_;
};

}  // namespace

std::unique_ptr<DeviceArena> allocate_host_arena(int64_t bytes) {
  return std::make_unique<HostArena>(bytes);
}

}  // namespace weft
