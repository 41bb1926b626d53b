// What the tests of the cold tier share.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/cold/cold_store.h"
#include "weft/io/test_folder.h"

namespace weft {

/// Bytes that differ from place to place and from `seed` to `seed`.
inline std::vector<char> cold_pattern(int64_t bytes, uint64_t seed) {
  std::vector<char> data(static_cast<size_t>(bytes));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (char& c : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return data;
}

/// Memory whose start is `shift` bytes after a multiple of 4096.
class ShiftedMemory {
 public:
  ShiftedMemory(int64_t bytes, int64_t shift)
      : whole_(static_cast<char*>(
            std::aligned_alloc(4096, static_cast<size_t>((bytes + shift + 4096) / 4096 * 4096)))),
        data_(whole_ + shift) {}
  ~ShiftedMemory() { std::free(whole_); }
  ShiftedMemory(const ShiftedMemory&) = delete;
  ShiftedMemory& operator=(const ShiftedMemory&) = delete;
  char* data() { return data_; }

 private:
  char* whole_;
  char* data_;
};

struct ColdCase {
  const char* name;
  ColdEngine engine;
  bool direct;
};

inline const ColdCase kColdCases[] = {
    {"UringDirect", ColdEngine::uring, true},
    {"UringBuffered", ColdEngine::uring, false},
    {"ThreadsDirect", ColdEngine::threads, true},
    {"ThreadsBuffered", ColdEngine::threads, false},
};

/// Runs for both engines, with and without direct I/O; without io_uring it is skipped.
class ColdTest : public testing::TestWithParam<ColdCase> {
 protected:
  void SetUp() override {
    int error = 0;
    if (GetParam().engine == ColdEngine::uring && !make_uring_engine({0}, 1, &error)) {
      GTEST_SKIP() << "no io_uring: " << errno_text(error);
    }
  }
  ColdOptions options(int64_t bytes, int stripes = 1) const {
    ColdOptions result;
    for (int i = 0; i < stripes; ++i)
      result.folders.push_back(folder_.file("disk" + std::to_string(i)));
    result.bytes = bytes;
    result.run = "test";
    result.block_bytes = 16384;
    result.queue_depth = 4;
    result.engine = GetParam().engine;
    result.direct = GetParam().direct;
    return result;
  }
  const TestFolder folder_;
};

inline std::string cold_case_name(const testing::TestParamInfo<ColdCase>& info) {
  return info.param.name;
}

inline void write_pattern(ColdStore& store, int64_t address, int64_t bytes, uint64_t seed) {
  const std::vector<char> data = cold_pattern(bytes, seed);
  store.write(address, data.data(), bytes);
}

inline bool holds_pattern(ColdStore& store, int64_t address, int64_t bytes, uint64_t seed) {
  std::vector<char> data(static_cast<size_t>(bytes), 'x');
  store.read(address, data.data(), bytes);
  return data == cold_pattern(bytes, seed);
}

/// The text of the error of type E that `call` throws, "" when there is none.
template <class E>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

/// Runs `work` in a child process and returns the text it returned; `end` ends the child.
inline std::string in_child(
    const std::function<std::string()>& work,
    const std::function<void()>& end = [] { ::_exit(0); }) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = std::string("error: ") + error.what();
    }
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) end();
    ::_exit(1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

}  // namespace weft
