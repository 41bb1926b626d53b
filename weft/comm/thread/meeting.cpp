#include "weft/comm/thread/meeting.h"

#include <algorithm>
#include <thread>

#include "weft/comm/collective_call.h"

namespace weft {
namespace {

// Looks at the epoch so often before it sleeps: some microseconds, and none when the threads cannot
// all run at once.
int spins_for(int world) {
  return static_cast<unsigned>(world) <= std::thread::hardware_concurrency() ? 2000 : 0;
}

}  // namespace

Meeting::Meeting(std::vector<int32_t> members, int world, double stall_seconds, Fault& fault,
                 Abort abort)
    : members_(std::move(members)),
      stall_seconds_(stall_seconds),
      spins_(spins_for(world)),
      fault_(fault),
      abort_(std::move(abort)),
      here_(members_.size(), 0),
      reading_(members_.size(), 0) {}

void Meeting::meet(int member, const std::string& what, Then then) {
  std::unique_lock lock(mutex_);
  end_reading(member);
  if (fault_.raised()) leave(lock);
  const uint64_t epoch = epoch_.load(std::memory_order_relaxed);
  here_[static_cast<size_t>(member)] = 1;
  if (++count_ == members_.size()) {
    count_ = 0;
    std::fill(here_.begin(), here_.end(), 0);
    epoch_.store(epoch + 1, std::memory_order_release);
    changed_.notify_all();
  } else {
    wait_for_others(lock, member, epoch, what);
    const bool met = epoch_.load(std::memory_order_relaxed) != epoch;
    if (fault_.raised() && (then == Then::read || !met)) leave(lock);
  }
  if (then == Then::go) return;
  reading_[static_cast<size_t>(member)] = 1;
  ++readers_;
}

void Meeting::wait_for_others(std::unique_lock<std::mutex>& lock, int member, uint64_t epoch,
                              const std::string& what) {
  if (spins_ > 0) {
    lock.unlock();
    for (int i = 0; i < spins_ && epoch_.load(std::memory_order_acquire) == epoch; ++i) {
      if (fault_.raised()) break;
    }
    lock.lock();
  }
  const auto done = [&] {
    return epoch_.load(std::memory_order_relaxed) != epoch || fault_.raised();
  };
  if (stall_seconds_ <= 0) return changed_.wait(lock, done);
  const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(stall_seconds_, 1e8)));
  if (changed_.wait_for(lock, limit, done)) return;
  std::vector<int32_t> missing;
  for (size_t i = 0; i < here_.size(); ++i) {
    if (here_[i] == 0) missing.push_back(members_[i]);
  }
  lock.unlock();
  abort_(members_[static_cast<size_t>(member)], stall_cause(missing, what, stall_seconds_));
  lock.lock();
}

void Meeting::leave(std::unique_lock<std::mutex>& lock) {
  // No member starts to read any more: that takes a meeting, and the fault is raised.
  changed_.wait(lock, [&] { return readers_ == 0; });
  lock.unlock();
  fault_.throw_peer_error();
}

void Meeting::end_reading(int member) {
  if (reading_[static_cast<size_t>(member)] == 0) return;
  reading_[static_cast<size_t>(member)] = 0;
  if (--readers_ == 0 && fault_.raised()) changed_.notify_all();
}

void Meeting::leave_after_failure(int member) {
  std::unique_lock lock(mutex_);
  end_reading(member);
  changed_.wait(lock, [&] { return readers_ == 0; });
}

void Meeting::wake() noexcept {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace weft
