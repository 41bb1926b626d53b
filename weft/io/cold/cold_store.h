// ColdStore: the cold tier of one rank, a flat address space in files on NVMe.
// docs/formats/cold-tier.md.
//
// Two threads use a store at the same time: one reads, one writes. Each direction has a queue of
// its own that keeps block_bytes requests in flight over all folders. Addresses are multiples of
// kColdAlign; sizes and memory may be anything, but memory that is not aligned is copied. What was
// written is checked by its checksum when it is read (every block that a read holds whole).
//
// Errors: ResourceError with path, byte offset and bytes when the disk fails, is full or gives back
// other bytes than it got; BugError for a read of bytes that were never written and for transfers
// that overlap at the same time. After an error of a write its range holds nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/cold/cold_options.h"

namespace weft {

class ColdFiles;
class ColdQueue;
class ColdRanges;

struct ColdCounters {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  double read_seconds = 0;     // with a read under way
  double write_seconds = 0;    // with a write under way
  int64_t bytes_verified = 0;  // of those read
  int64_t bytes_copied = 0;    // of unaligned memory and odd sizes
};

/// A transfer under way.
struct ColdTransfer {
  uint64_t id = 0;
  bool write = false;
};

class ColdStore {
 public:
  /// Makes the files at their full size. UsageError for options out of range, InputError for a
  /// folder that is not there, ResourceError for a disk without room and for files of a live run.
  static std::unique_ptr<ColdStore> open(const ColdOptions& options);
  /// Waits for what is in flight and removes the files.
  ~ColdStore();
  ColdStore(const ColdStore&) = delete;
  ColdStore& operator=(const ColdStore&) = delete;

  /// Pins an arena for transfers where the system permits it; call before the first transfer.
  void register_memory(void* data, int64_t bytes);

  void read(int64_t address, void* data, int64_t bytes) { wait(begin_read(address, data, bytes)); }
  void write(int64_t address, const void* data, int64_t bytes) {
    wait(begin_write(address, data, bytes));
  }
  /// Starts a transfer: `data` must stay, and for a write keep its content, until wait() returned.
  /// A lane that begins the next transfer before it waits for the last keeps the disk busy.
  ColdTransfer begin_read(int64_t address, void* data, int64_t bytes);
  ColdTransfer begin_write(int64_t address, const void* data, int64_t bytes);
  /// By the thread that began it, once.
  void wait(ColdTransfer transfer);

  /// Any thread.
  ColdCounters counters() const;
  /// Of the files, without their owner records.
  int64_t file_bytes() const;
  std::vector<std::string> paths() const;
  std::string engine_name() const;
  /// What is not as fast or as safe as it could be, each also logged once at open.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Most bytes of host memory that a store uses for buffers: those of odd sizes and, when memory
  /// is unaligned, four blocks per direction.
  static int64_t buffer_bytes(const ColdOptions& options);

 private:
  explicit ColdStore(const ColdOptions& options);
  std::unique_ptr<IoEngine> make_engine(const ColdOptions& options, int depth);
  void note(std::string text);

  std::vector<std::string> notes_;
  ColdLayout layout_;
  std::unique_ptr<ColdFiles> files_;
  std::unique_ptr<ColdRanges> ranges_;
  std::unique_ptr<ColdQueue> reads_;
  std::unique_ptr<ColdQueue> writes_;
};

}  // namespace weft
