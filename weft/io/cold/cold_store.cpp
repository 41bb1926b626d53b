#include "weft/io/cold/cold_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/io/cold/cold_files.h"
#include "weft/io/cold/cold_queue.h"
#include "weft/io/cold/cold_ranges.h"

namespace weft {
namespace {

constexpr int64_t kMaxBlock = int64_t{1} << 30;
constexpr int kMaxDepth = 1024;

void check(const ColdOptions& options) {
  constexpr std::string_view where = "cold tier";
  if (options.folders.empty()) {
    throw UsageError(where, "got no folder, expected one or more; try memory.nvme = [\"folder\"]");
  }
  if (options.block_bytes < kColdAlign || options.block_bytes > kMaxBlock ||
      options.block_bytes % kColdAlign != 0) {
    throw UsageError(where, fmt::format("got a block of {} bytes, expected a multiple of {} up to "
                                        "{}; try 1048576",
                                        options.block_bytes, kColdAlign, kMaxBlock));
  }
  const auto folders = static_cast<int64_t>(options.folders.size());
  if (options.queue_depth < 1 || options.queue_depth * folders > kMaxDepth) {
    throw UsageError(where, fmt::format("got a queue depth of {} on {} folders, expected 1 to {} "
                                        "requests in flight; try 16",
                                        options.queue_depth, folders, kMaxDepth));
  }
  WEFT_CHECK(options.bytes > 0, where, "a store of {} bytes was asked for", options.bytes);
}

int total_depth(const ColdOptions& options) {
  return options.queue_depth * static_cast<int>(options.folders.size());
}

}  // namespace

std::unique_ptr<ColdStore> ColdStore::open(const ColdOptions& options) {
  check(options);
  ColdOptions complete = options;
  if (complete.driver == nullptr) complete.driver = &posix_driver();
  return std::unique_ptr<ColdStore>(new ColdStore(complete));
}

ColdStore::ColdStore(const ColdOptions& options)
    : layout_{options.bytes, options.block_bytes, static_cast<int64_t>(options.folders.size())} {
  files_ = std::make_unique<ColdFiles>(options, layout_, notes_);
  for (const std::string& text : notes_) log_info("cold tier: {}", text);
  ranges_ = std::make_unique<ColdRanges>();
  const int depth = total_depth(options);
  const auto make_queue = [&](bool write) {
    return std::make_unique<ColdQueue>(ColdQueue::Setup{write, depth, options.checksum}, layout_,
                                       *files_, *options.driver, *ranges_,
                                       make_engine(options, depth));
  };
  reads_ = make_queue(false);
  writes_ = make_queue(true);
}

ColdStore::~ColdStore() = default;

void ColdStore::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) != notes_.end()) return;
  log_info("cold tier: {}", text);
  notes_.push_back(std::move(text));
}

std::unique_ptr<IoEngine> ColdStore::make_engine(const ColdOptions& options, int depth) {
  std::unique_ptr<IoEngine> engine;
  if (options.engine != ColdEngine::threads) {
    int error = 0;
    engine = make_uring_engine(files_->handles(), depth, &error);
    if (engine == nullptr) {
      const std::string reason = errno_text(error);
      if (options.engine == ColdEngine::uring) {
        throw ResourceError("cold tier",
                            fmt::format("got \"{}\" for io_uring; try engine threads", reason));
      }
      note(fmt::format("no io_uring ({}), so threads do the transfers", reason));
    }
  }
  if (engine == nullptr) engine = make_thread_engine(files_->handles(), depth);
  if (options.wrap_engine) engine = options.wrap_engine(std::move(engine), files_->paths());
  return engine;
}

void ColdStore::register_memory(void* data, int64_t bytes) {
  WEFT_CHECK(reads_->idle() && writes_->idle(), "cold tier",
             "memory is registered during transfers");
  for (ColdQueue* queue : {reads_.get(), writes_.get()}) {
    const int error = queue->engine().register_memory(static_cast<char*>(data), bytes);
    if (error != 0) {
      note(
          fmt::format("{} bytes of memory stay unpinned ({}), so transfers cost a little more; a "
                      "higher `ulimit -l` helps",
                      bytes, errno_text(error)));
    }
  }
}

ColdTransfer ColdStore::begin_read(int64_t address, void* data, int64_t bytes) {
  return {reads_->begin(address, static_cast<char*>(data), bytes), false};
}

ColdTransfer ColdStore::begin_write(int64_t address, const void* data, int64_t bytes) {
  // The queue only reads what it writes to disk.
  auto* from = const_cast<char*>(static_cast<const char*>(data));
  return {writes_->begin(address, from, bytes), true};
}

void ColdStore::wait(ColdTransfer transfer) {
  (transfer.write ? *writes_ : *reads_).wait(transfer.id);
}

ColdCounters ColdStore::counters() const {
  const ColdQueueCounters& reads = reads_->counters();
  const ColdQueueCounters& writes = writes_->counters();
  return {reads.bytes,
          writes.bytes,
          static_cast<double>(reads.busy_ns) * 1e-9,
          static_cast<double>(writes.busy_ns) * 1e-9,
          reads.verified,
          reads.copied + writes.copied};
}

int64_t ColdStore::file_bytes() const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < layout_.files; ++i) bytes += layout_.file_bytes(i);
  return bytes;
}

std::vector<std::string> ColdStore::paths() const { return files_->paths(); }

std::string ColdStore::engine_name() const { return reads_->engine().name(); }

int64_t ColdStore::buffer_bytes(const ColdOptions& options) {
  const int depth = total_depth(options);
  return 2 * (2 * depth * kColdAlign +
              std::min<int64_t>(kMaxBlockBuffers, 2 * depth) * options.block_bytes);
}

}  // namespace weft
