#include "weft/io/cold/cold_probe.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>

#include "weft/base/error.h"
#include "weft/base/mapped_memory.h"
#include "weft/io/cold/cold_store.h"
#include "weft/io/file.h"

namespace weft {
namespace {

constexpr int64_t kChunk = int64_t{16} << 20;
constexpr double kQuick = 5;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Two chunks of memory that transfers use in turns, as a lane does; huge pages as in the arenas.
class Chunks {
 public:
  Chunks() : memory_("cold tier", 2 * kChunk) {
    for (int64_t i = 0; i < 2 * kChunk; i += kColdAlign) *at_byte(i) = static_cast<char>(i >> 12);
  }
  char* at(int64_t i) { return at_byte(i % 2 * kChunk); }

 private:
  char* at_byte(int64_t i) { return reinterpret_cast<char*>(memory_.data()) + i; }

  MappedMemory memory_;
};

/// Chunks [begin, end) round and round, two in flight, for `seconds`; bytes per second.
double run(ColdStore& store, Chunks& memory, bool write, int64_t begin, int64_t end,
           double seconds) {
  const auto start_transfer = [&](int64_t i) {
    const int64_t address = (begin + i % (end - begin)) * kChunk;
    return write ? store.begin_write(address, memory.at(i), kChunk)
                 : store.begin_read(address, memory.at(i), kChunk);
  };
  // Two chunks of the same place must not be in flight at once.
  const int64_t ahead = std::min<int64_t>(2, end - begin);
  const Clock::time_point start = Clock::now();
  std::vector<ColdTransfer> flying;
  int64_t begun = 0;
  for (; begun < ahead; ++begun) flying.push_back(start_transfer(begun));
  int64_t done = 0;
  for (; seconds_since(start) < seconds; ++done) {
    store.wait(flying[static_cast<size_t>(done % ahead)]);
    flying[static_cast<size_t>(done % ahead)] = start_transfer(begun++);
  }
  for (; done < begun; ++done) store.wait(flying[static_cast<size_t>(done % ahead)]);
  return static_cast<double>(done * kChunk) / seconds_since(start);
}

ColdOptions make_options(const std::string& folder, int64_t bytes, int64_t block, int depth) {
  ColdOptions options;
  options.folders = {folder};
  options.bytes = bytes;
  options.run = fmt::format("probe-{}", ::getpid());
  options.block_bytes = block;
  options.queue_depth = depth;
  options.checksum = false;
  return options;
}

}  // namespace

ColdProbe probe_cold_folder(const std::string& folder, double seconds, int64_t bytes) {
  seconds = std::clamp(seconds, 2.0, 30.0);
  std::vector<std::pair<int64_t, int>> pairs = {{1 << 20, 8}, {1 << 20, 32}, {4 << 20, 8}};
  if (seconds >= kQuick) {
    pairs = {{1 << 18, 16}, {1 << 18, 64}, {1 << 20, 4},  {1 << 20, 16},
             {1 << 20, 64}, {4 << 20, 4},  {4 << 20, 16}, {16 << 20, 4}};
  }
  FileSystem& files = posix_files();
  // Half of what is free at most: others may be writing.
  const int64_t room = files.is_folder(folder) ? files.free_bytes(folder) / 2 : bytes;
  const int64_t chunks = std::min(bytes, room) / kChunk;
  if (chunks < 2) {
    throw ResourceError(folder,
                        fmt::format("got {} bytes of room for the measurement, expected at least "
                                    "{}; try another folder",
                                    std::min(bytes, room), 2 * kChunk));
  }
  ColdProbe probe;
  Chunks memory;
  Chunks other;
  // Of a pair: the first pass over new blocks, which is slower and not counted, and three phases.
  const double slice = seconds / static_cast<double>(pairs.size()) / 4;
  for (const auto& [block, depth] : pairs) {
    auto store = ColdStore::open(make_options(folder, chunks * kChunk, block, depth));
    store->register_memory(memory.at(0), 2 * kChunk);
    store->register_memory(other.at(0), 2 * kChunk);
    const Clock::time_point start = Clock::now();
    int64_t filled = 0;
    for (; filled < chunks && (filled < 2 || seconds_since(start) < slice); ++filled) {
      store->write(filled * kChunk, memory.at(filled), kChunk);
    }
    ColdRate rate{block, depth};
    rate.read = run(*store, memory, false, 0, filled, slice);
    rate.write = run(*store, memory, true, 0, filled, slice);
    auto mixed = std::async(std::launch::async,
                            [&] { return run(*store, other, true, filled / 2, filled, slice); });
    rate.mixed_read = run(*store, memory, false, 0, filled / 2, slice);
    rate.mixed_write = mixed.get();
    probe.rates.push_back(rate);
    probe.engine = store->engine_name();
    probe.notes = store->notes();
  }
  double fastest = 0;
  for (const ColdRate& rate : probe.rates) fastest = std::max(fastest, rate.total());
  int64_t least = 0;
  for (const ColdRate& rate : probe.rates) {
    const int64_t in_flight = rate.block_bytes * rate.queue_depth;
    if (rate.total() < 0.97 * fastest || (least != 0 && in_flight >= least)) continue;
    least = in_flight;
    probe.best = rate;
  }
  return probe;
}

}  // namespace weft
