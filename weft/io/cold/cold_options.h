// What a cold store is made of, and where each byte of its address space lies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/check.h"
#include "weft/io/cold/io_engine.h"
#include "weft/io/file_driver.h"

namespace weft {

/// Addresses given to a store are multiples of this; sizes and memory may be anything.
inline constexpr int64_t kColdAlign = 4096;

enum class ColdEngine {
  automatic,  // io_uring where the system has it, else threads
  uring,
  threads,
};

struct ColdOptions {
  std::vector<std::string> folders;  // blocks go round over them; a missing last folder is made
  int64_t bytes = 0;                 // of the address space
  int rank = 0;
  std::string run;                // with the rank it names the files: unique among live runs
  int64_t block_bytes = 1 << 20;  // of one request; a multiple of kColdAlign
  int queue_depth = 16;           // requests in flight per folder and direction
  bool checksum = true;
  bool direct = true;  // false: through the page cache
  ColdEngine engine = ColdEngine::automatic;
  FileDriver* driver = nullptr;  // lists, removes and measures folders; null = posix_driver()
  /// Tests: puts an engine of their own around the one made; `paths` by file.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>,
                                          const std::vector<std::string>& paths)>
      wrap_engine;
};

/// Block b of the address space is block b / files of file b % files.
struct ColdLayout {
  int64_t bytes = 0;
  int64_t block = 0;
  int64_t files = 0;

  int file(int64_t address) const { return static_cast<int>(address / block % files); }
  int64_t offset(int64_t address) const {
    return address / block / files * block + address % block;
  }
  int64_t file_bytes(int64_t file) const {
    const int64_t whole = bytes / block;
    const int64_t rest = round_up(bytes % block, kColdAlign);
    return (whole / files + (file < whole % files ? 1 : 0)) * block +
           (file == whole % files ? rest : 0);
  }
};

}  // namespace weft
