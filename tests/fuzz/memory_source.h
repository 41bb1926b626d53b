// The bytes a fuzzer gives as a file.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "weft/base/error.h"
#include "weft/data/file_pool.h"

namespace weft {

class MemorySource : public ByteSource {
 public:
  MemorySource(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const std::string& name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(size_); }
  void read(int64_t offset, void* data, int64_t bytes) const override {
    if (offset < 0 || bytes < 0 || offset > size() || bytes > size() - offset) {
      throw BugError(name_, "read outside the file");
    }
    if (bytes > 0) std::memcpy(data, data_ + offset, static_cast<size_t>(bytes));
  }

 private:
  const uint8_t* data_;
  size_t size_;
  std::string name_ = "fuzz";
};

}  // namespace weft
