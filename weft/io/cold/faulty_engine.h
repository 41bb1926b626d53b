// An IoEngine that fails on purpose, for tests: errors, short counts, full disks, flipped bits and
// slow disks, below everything that the cold tier promises. Put it in by ColdOptions::wrap_engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/io/cold/io_engine.h"

namespace weft {

struct IoFault {
  bool write = true;
  std::string path_part;    // only files whose path contains it; empty = all
  int64_t skip = 0;         // matching requests let through before the first fault
  int64_t times = -1;       // faults; -1 = for ever
  int error = 0;            // errno to give instead of the transfer
  int64_t short_bytes = 0;  // > 0: transfer and report at most that many bytes
  int64_t flip_byte = -1;   // >= 0: a bit of that byte of what was read is wrong
  int hold = 0;             // results of other requests that come first, while there are any
};

/// The faults of all engines of a store. Thread-safe.
class IoFaults {
 public:
  void add(IoFault fault);
  void clear();
  /// Bytes that may still be written before every write gives ENOSPC; -1 = no limit.
  void set_capacity(int64_t bytes);
  /// Called with the requests in flight before each wait of an engine; thread of the engine.
  void set_hook(std::function<void(bool write, int in_flight)> hook);
  int64_t requests(bool write) const;

  /// Value for ColdOptions::wrap_engine; the faults must outlive the store.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>,
                                          const std::vector<std::string>&)>
  wrapper();

 private:
  friend class FaultyEngine;
  struct Armed {
    IoFault fault;
    int64_t seen = 0;
    int64_t failed = 0;
  };
  /// The faults of one request, merged into one.
  IoFault decide(const IoRequest& request, const std::string& path);
  void call_hook(bool write, int in_flight);

  mutable std::mutex mutex_;
  std::vector<Armed> faults_;
  int64_t capacity_ = -1;
  std::function<void(bool, int)> hook_;
  int64_t requests_[2] = {0, 0};
};

}  // namespace weft
