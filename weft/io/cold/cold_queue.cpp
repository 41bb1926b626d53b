#include "weft/io/cold/cold_queue.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/io/cold/block_hash.h"
#include "weft/io/file.h"

namespace weft {
namespace {

/// Tries in a row that may do nothing (interrupted, or short of one aligned unit).
constexpr int kMaxStalled = 100;

bool is_direct(const ColdFile& file) { return file.direct; }

/// Tells the page cache that a piece will not be needed from there: a write starts on its way to
/// the disk, what was read may go. Advice only.
void advise(const ColdFile& file, bool write, int64_t offset, int64_t bytes) {
  if (write) {
    ::sync_file_range(file.handle, offset, bytes, SYNC_FILE_RANGE_WRITE);
  } else {
    ::posix_fadvise(file.handle, offset, bytes, POSIX_FADV_DONTNEED);
  }
}

}  // namespace

void ColdQueue::Release::operator()(char* memory) const { std::free(memory); }

ColdQueue::ColdQueue(const Setup& setup, const ColdLayout& layout, const ColdFiles& files,
                     FileDriver& driver, ColdRanges& ranges, std::unique_ptr<IoEngine> engine)
    : setup_(setup),
      layout_(layout),
      files_(files),
      driver_(driver),
      ranges_(ranges),
      align_(std::any_of(files.files().begin(), files.files().end(), is_direct) ? kColdAlign : 1),
      slots_(2 * static_cast<size_t>(setup.depth)),
      engine_(std::move(engine)) {
  for (size_t i = slots_.size(); i-- > 0;) free_slots_.push_back(i);
}

ColdQueue::~ColdQueue() {
  try {
    for (const auto& op : ops_) op->next = op->bytes;  // nothing more is started
    while (in_flight_ > 0) {
      results_.clear();
      engine_->wait(results_);
      in_flight_ -= static_cast<int>(results_.size());
    }
  } catch (const Error&) {
    // The engine is broken; its own end stops what is left.
  }
}

uint64_t ColdQueue::begin(int64_t address, char* data, int64_t bytes) {
  WEFT_CHECK(
      address >= 0 && bytes >= 0 && address % kColdAlign == 0 && address + bytes <= layout_.bytes,
      "cold tier", "got a transfer of {} bytes at {}, expected a multiple of {} inside {}", bytes,
      address, kColdAlign, layout_.bytes);
  auto op = std::make_unique<Op>();
  op->id = next_id_++;
  op->address = address;
  op->data = data;
  op->bytes = bytes;
  const uint64_t id = op->id;
  if (bytes > 0 && setup_.write) ranges_.begin_write(address, address + bytes);
  if (bytes > 0 && !setup_.write) ranges_.begin_read(address, address + bytes);
  ops_.push_back(std::move(op));
  note_busy();
  fill();
  return id;
}

void ColdQueue::wait(uint64_t id) {
  const auto find = [&] {
    return std::find_if(ops_.begin(), ops_.end(), [&](const auto& op) { return op->id == id; });
  };
  const auto place = find();
  WEFT_CHECK(place != ops_.end(), "cold tier", "transfer {} is not under way", id);
  while (!(*place)->complete()) step();
  const std::unique_ptr<Op> op = std::move(*place);
  ops_.erase(place);
  note_busy();
  const int64_t end = op->address + op->bytes;
  if (op->error) op->written.clear();
  if (op->bytes > 0 && setup_.write) ranges_.end_write(op->address, end, op->written);
  if (op->bytes > 0 && !setup_.write) ranges_.end_read(op->address, end);
  if (op->error) std::rethrow_exception(op->error);
  counters_.bytes += op->bytes;
}

void ColdQueue::step() {
  fill();
  if (in_flight_ == 0) return;  // all that is left failed before it began
  results_.clear();
  engine_->wait(results_);
  batch_.clear();
  for (const IoResult& result : results_) settle(result);
  if (!batch_.empty()) engine_->submit(batch_);  // the rests of short requests
  fill();
  for (const size_t slot : finished_) {
    finish(slots_[slot]);
    free_slots_.push_back(slot);
  }
  finished_.clear();
  note_busy();
}

/// Starts requests, oldest transfer first, until the depth is reached.
void ColdQueue::fill() {
  batch_.clear();
  begun_.clear();
  for (const auto& op : ops_) {
    while (op->next < op->bytes && in_flight_ + static_cast<int>(batch_.size()) < setup_.depth) {
      if (!prepare(*op)) break;
    }
    if (op->next < op->bytes) break;
  }
  if (batch_.empty()) return;
  in_flight_ += static_cast<int>(batch_.size());
  engine_->submit(batch_);
  if (!setup_.write || !setup_.checksum) return;
  for (const size_t index : begun_) {
    Slot& slot = slots_[index];
    slot.hash = block_hash(slot.memory, slot.bytes);
  }
}

/// Makes the next request of a transfer; false when there is no buffer for it now.
bool ColdQueue::prepare(Op& op) {
  if (free_slots_.empty()) return false;
  const int64_t address = op.address + op.next;
  const int64_t block_end = (address / layout_.block + 1) * layout_.block;
  int64_t bytes = std::min(block_end - address, op.bytes - op.next);
  // The end of an odd size is a request of its own, so that only that is copied.
  if (bytes > align_) bytes = bytes / align_ * align_;
  const ColdFile& file = files_.files()[static_cast<size_t>(layout_.file(address))];
  char* data = op.data + op.next;
  const bool aligned =
      reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(std::max(file.memory_align, 1)) ==
      0;
  char* memory = data;
  if (!aligned || bytes % align_ != 0) {
    memory = take_buffer(bytes);
    if (memory == nullptr) {
      // With nothing under way every buffer is free, so there was no memory for the first one.
      if (in_flight_ == 0 && batch_.empty() && finished_.empty()) {
        op.next = op.bytes;
        op.error = std::make_exception_ptr(ResourceError(
            "cold tier", fmt::format("got no memory for a buffer of {} bytes; try a smaller "
                                     "memory.host",
                                     bytes)));
      }
      return false;
    }
  }
  const size_t index = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[index];
  slot = {&op, address, data, bytes, memory, round_up(bytes, align_)};
  if (memory != data) {
    counters_.copied += bytes;
    if (setup_.write) {
      std::memcpy(memory, data, static_cast<size_t>(bytes));
      std::memset(memory + bytes, 0, static_cast<size_t>(slot.length - bytes));
    }
  }
  op.next += bytes;
  ++op.open;
  begun_.push_back(index);
  batch_.push_back(request(index));
  return true;
}

IoRequest ColdQueue::request(size_t index) const {
  const Slot& slot = slots_[index];
  return {index,
          setup_.write,
          layout_.file(slot.address),
          layout_.offset(slot.address) + slot.done,
          slot.memory + slot.done,
          slot.length - slot.done};
}

/// Takes one result of the engine: the request is done, goes on, or failed.
void ColdQueue::settle(const IoResult& result) {
  const auto index = static_cast<size_t>(result.tag);
  Slot& slot = slots_[index];
  const bool again = result.result == -EINTR || result.result == -EAGAIN;
  int64_t count = result.result;
  if (again || (count > 0 && slot.done + count < slot.length)) {
    // What follows must stay aligned, so the end of a short count is done again.
    count = again ? 0 : count / align_ * align_;
    slot.done += count;
    slot.stalled = count > 0 ? 0 : slot.stalled + 1;
    if (slot.stalled < kMaxStalled && !slot.op->error) {
      batch_.push_back(request(index));
      return;
    }
    fail(slot, again ? result.result : 0, slot.done);
  } else if (count <= 0) {
    fail(slot, count, slot.done);
  }
  --in_flight_;
  finished_.push_back(index);
}

/// The first error of a transfer stops the making of its requests; those in flight go on.
void ColdQueue::fail(Slot& slot, int64_t result, int64_t at) {
  Op& op = *slot.op;
  op.next = op.bytes;
  if (op.error) return;
  const ColdFile& file = files_.files()[static_cast<size_t>(layout_.file(slot.address))];
  const int64_t offset = layout_.offset(slot.address) + at;
  const std::string what =
      fmt::format("cannot {} {} bytes at byte {}", setup_.write ? "write" : "read",
                  slot.bytes - std::min(at, slot.bytes), offset);
  std::string message;
  if (result == -ENOSPC || result == -EDQUOT) {
    const int64_t free = std::max<int64_t>(driver_.free_bytes(parent_path(file.path)), 0);
    message = fmt::format(
        "{}: the disk is full, needed {} bytes, free {} bytes; try freeing space "
        "or another folder in memory.nvme",
        what, slot.length - at, free);
  } else if (result == 0) {
    message = fmt::format(
        "{}: got no progress in {} tries, expected the whole; was the file cut, or "
        "try checking the disk",
        what, std::max(slot.stalled, 1));
  } else {
    message =
        fmt::format("{}: {}; try checking the disk", what, errno_text(static_cast<int>(-result)));
  }
  op.error = std::make_exception_ptr(ResourceError(file.path, message));
}

void ColdQueue::finish(Slot& slot) {
  Op& op = *slot.op;
  const ColdFile& file = files_.files()[static_cast<size_t>(layout_.file(slot.address))];
  if (!op.error) {
    if (setup_.write) {
      op.written.push_back({slot.address, slot.address + slot.bytes, slot.hash, setup_.checksum});
    } else {
      if (setup_.checksum) verify(slot);
      if (slot.memory != slot.data) {
        std::memcpy(slot.data, slot.memory, static_cast<size_t>(slot.bytes));
      }
    }
    if (!file.direct) advise(file, setup_.write, layout_.offset(slot.address), slot.length);
  }
  if (slot.memory != slot.data) give_buffer(slot);
  --op.open;
}

void ColdQueue::verify(const Slot& slot) {
  found_.clear();
  ranges_.checked_in(slot.address, slot.address + slot.bytes, found_);
  for (const ColdRange& range : found_) {
    const int64_t bytes = range.end - range.begin;
    const uint64_t hash = block_hash(slot.memory + (range.begin - slot.address), bytes);
    counters_.verified += bytes;
    if (hash == range.hash) continue;
    Op& op = *slot.op;
    op.next = op.bytes;
    const std::string& path = files_.files()[static_cast<size_t>(layout_.file(slot.address))].path;
    op.error = std::make_exception_ptr(ResourceError(
        path, fmt::format("got other bytes than were written in the {} bytes at byte {} (checksum "
                          "{:016x}, expected {:016x}): the disk or its path flips bits; try "
                          "resuming from the last checkpoint on another disk",
                          bytes, layout_.offset(range.begin), hash, range.hash)));
    return;
  }
}

/// Null when all are taken.
char* ColdQueue::take_buffer(int64_t bytes) {
  const bool tail = bytes <= kColdAlign;
  std::vector<char*>& free = tail ? free_tails_ : free_blocks_;
  if (free.empty() && (tail || blocks_made_ < kMaxBlockBuffers)) {
    const int64_t size = tail ? kColdAlign : layout_.block;
    Memory memory(static_cast<char*>(
        std::aligned_alloc(static_cast<size_t>(kColdAlign), static_cast<size_t>(size))));
    if (memory == nullptr) return nullptr;
    if (!tail) ++blocks_made_;
    free.push_back(memory.get());
    buffers_.push_back(std::move(memory));
  }
  if (free.empty()) return nullptr;
  char* memory = free.back();
  free.pop_back();
  return memory;
}

void ColdQueue::give_buffer(const Slot& slot) {
  (slot.bytes <= kColdAlign ? free_tails_ : free_blocks_).push_back(slot.memory);
}

void ColdQueue::note_busy() {
  const bool busy =
      std::any_of(ops_.begin(), ops_.end(), [](const auto& op) { return !op->complete(); });
  if (busy == busy_) return;
  busy_ = busy;
  const auto now = std::chrono::steady_clock::now();
  if (busy) {
    busy_since_ = now;
  } else {
    counters_.busy_ns +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - busy_since_).count();
  }
}

}  // namespace weft
