// One direction of a cold store: cuts transfers into requests and keeps up to `depth` of them in
// flight, across the border between one transfer and the next.
//
// A queue serves one thread. Requests advance inside begin() and wait(): while a thread waits for
// one transfer, requests of the later ones are started, so a thread that begins transfer n + 1
// before it waits for n never lets the disk run dry. Checksums are computed after the next
// requests have been started.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/cold/cold_files.h"
#include "weft/io/cold/cold_options.h"
#include "weft/io/cold/cold_ranges.h"
#include "weft/io/cold/io_engine.h"

namespace weft {

/// Buffers of a whole block, for memory that is not aligned: more would not make copies faster.
inline constexpr int kMaxBlockBuffers = 4;

struct ColdQueueCounters {
  std::atomic<int64_t> bytes{0};     // of transfers that ended well
  std::atomic<int64_t> verified{0};  // bytes compared with their checksum
  std::atomic<int64_t> copied{0};    // bytes that went through a buffer of the queue
  std::atomic<int64_t> busy_ns{0};   // time with a transfer under way
};

class ColdQueue {
 public:
  struct Setup {
    bool write = false;
    int depth = 1;  // of all files together
    bool checksum = true;
  };
  /// All references must outlive the queue.
  ColdQueue(const Setup& setup, const ColdLayout& layout, const ColdFiles& files,
            FileDriver& driver, ColdRanges& ranges, std::unique_ptr<IoEngine> engine);
  /// Waits for what is in flight.
  ~ColdQueue();
  ColdQueue(const ColdQueue&) = delete;
  ColdQueue& operator=(const ColdQueue&) = delete;

  /// Starts a transfer and returns its number; `data` must stay, and for a write keep its content,
  /// until the wait. Transfers may be waited for in any order.
  uint64_t begin(int64_t address, char* data, int64_t bytes);
  /// Returns when the transfer is done; throws what went wrong with it, after its last request
  /// ended. Each transfer is waited for once.
  void wait(uint64_t id);

  IoEngine& engine() { return *engine_; }
  const ColdQueueCounters& counters() const { return counters_; }
  bool idle() const { return ops_.empty(); }

 private:
  struct Op {
    uint64_t id = 0;
    int64_t address = 0;
    char* data = nullptr;
    int64_t bytes = 0;
    int64_t next = 0;  // bytes whose requests were made
    int open = 0;      // requests made and not finished
    std::exception_ptr error;
    std::vector<ColdRange> written;
    bool complete() const { return next == bytes && open == 0; }
  };
  /// One request: a piece of a transfer inside one block.
  struct Slot {
    Op* op = nullptr;
    int64_t address = 0;
    char* data = nullptr;    // of the user
    int64_t bytes = 0;       // without padding
    char* memory = nullptr;  // what the engine sees: data, or a buffer
    int64_t length = 0;      // with padding
    int64_t done = 0;
    int stalled = 0;  // tries in a row without progress
    uint64_t hash = 0;
  };

  void step();
  void fill();
  bool prepare(Op& op);
  IoRequest request(size_t slot) const;
  void settle(const IoResult& result);
  void finish(Slot& slot);
  void verify(const Slot& slot);
  void fail(Slot& slot, int64_t result, int64_t at);
  char* take_buffer(int64_t bytes);
  void give_buffer(const Slot& slot);
  void note_busy();

  const Setup setup_;
  const ColdLayout layout_;
  const ColdFiles& files_;
  FileDriver& driver_;
  ColdRanges& ranges_;
  const int64_t align_;  // of requests: kColdAlign when any file is direct, else 1
  ColdQueueCounters counters_;

  std::deque<std::unique_ptr<Op>> ops_;  // in the order of begin()
  uint64_t next_id_ = 1;
  std::vector<Slot> slots_;
  std::vector<size_t> free_slots_;
  int in_flight_ = 0;
  std::vector<IoResult> results_;
  std::vector<IoRequest> batch_;
  std::vector<size_t> begun_;     // slots of this fill()
  std::vector<size_t> finished_;  // slots that the engine is done with
  std::vector<ColdRange> found_;

  struct Release {
    void operator()(char* memory) const;
  };
  using Memory = std::unique_ptr<char, Release>;
  std::vector<Memory> buffers_;
  std::vector<char*> free_blocks_;  // of layout_.block bytes
  std::vector<char*> free_tails_;   // of kColdAlign bytes
  int blocks_made_ = 0;

  bool busy_ = false;
  std::chrono::steady_clock::time_point busy_since_;
  // Last: it may still write into buffers until it is gone.
  std::unique_ptr<IoEngine> engine_;
};

}  // namespace weft
