// What was written where: the extents of a cold store that hold data, with their checksums, and the
// ranges that transfers use at this moment. Thread-safe; about 100 bytes of memory per block.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace weft {

/// Addresses [begin, end).
struct ColdRange {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t hash = 0;
  bool checked = false;  // hash is that of the range
};

class ColdRanges {
 public:
  /// BugError when part of the range was never written, or is being written.
  void begin_read(int64_t begin, int64_t end);
  void end_read(int64_t begin, int64_t end);
  /// Forgets what the range (and the padding up to the next kColdAlign) held; the rest of a range
  /// that it cuts stays, unchecked. BugError when another transfer uses part of it.
  void begin_write(int64_t begin, int64_t end);
  /// `written`: its pieces; none when the write failed, so that the range holds nothing.
  void end_write(int64_t begin, int64_t end, const std::vector<ColdRange>& written);
  /// Appends the checked ranges that lie inside [begin, end).
  void checked_in(int64_t begin, int64_t end, std::vector<ColdRange>& ranges) const;

 private:
  struct Use {
    int64_t begin = 0;
    int64_t end = 0;
    bool write = false;
  };
  void check_free(int64_t begin, int64_t end, bool write) const;
  void release(int64_t begin, int64_t end, bool write);

  mutable std::mutex mutex_;
  std::map<int64_t, ColdRange> ranges_;  // by begin; they do not overlap
  std::vector<Use> uses_;
};

}  // namespace weft
