// Any bytes as a safetensors file: refused with an InputError, or every tensor reads.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/safetensors.h"

namespace {

/// A file in memory that has a path.
int memory_file() {
  static const int handle = memfd_create("fuzz", MFD_CLOEXEC);
  if (handle < 0) std::abort();
  return handle;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int handle = memory_file();
  if (ftruncate(handle, 0) != 0) std::abort();
  if (pwrite(handle, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    weft::SafetensorsReader reader(weft::posix_files(), "/proc/self/fd/" + std::to_string(handle));
    int64_t end = 0;
    for (const weft::TensorEntry& entry : reader.tensors()) {
      if (end != 0 && entry.offset != end) std::abort();
      end = entry.offset + entry.bytes;
      std::vector<char> bytes(static_cast<size_t>(entry.bytes));
      reader.read(entry, bytes.data());
      if (reader.find(entry.name) != &entry) std::abort();
    }
    if (end != 0 && end != static_cast<int64_t>(size)) std::abort();
  } catch (const weft::InputError&) {
  }
  return 0;
}
