#include "weft/base/mapped_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "weft/base/error.h"

namespace weft {
namespace {

/// Whether the system was told to use huge pages where `data` lies ("hg" of VmFlags).
bool advised(const std::byte* data) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    const size_t dash = line.find('-');
    if (line.starts_with("VmFlags:")) {
      if (here) return line.find(" hg") != std::string::npos;
    } else if (dash != std::string::npos && dash < line.find(' ')) {
      here = std::stoull(line.substr(0, dash), nullptr, 16) <= at &&
             at < std::stoull(line.substr(dash + 1), nullptr, 16);
    }
  }
  return false;
}

TEST(MappedMemory, IsAlignedZeroedAndExactlyAsLarge) {
  for (const int64_t bytes : {0, 1, 4096, 100001, 2 << 20, (6 << 20) + 1}) {
    const MappedMemory memory("test", bytes);
    EXPECT_EQ(memory.bytes(), bytes);
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    EXPECT_EQ(at % (bytes >= (2 << 20) ? 2 << 20 : 4096), 0u) << bytes;
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0});
    for (int64_t i = 0; i < bytes; ++i) memory.data()[i] = std::byte{1};
  }
}

TEST(MappedMemory, AsksForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  const MappedMemory memory("test", 8 << 20);
  EXPECT_TRUE(advised(memory.data()));
}

TEST(MappedMemory, TooLargeIsAResourceErrorWithTheNumber) {
  try {
    MappedMemory("test", int64_t{1} << 60);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "[test] got \"Cannot allocate memory\", expected 1152921504606846976 bytes of memory; "
        "try a smaller micro_batch or memory.device");
  }
}

}  // namespace
}  // namespace weft
