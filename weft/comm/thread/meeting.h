// Where the threads of a group of ranks wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/fault.h"

namespace weft {

/// A barrier that ends early when a fault is raised, and raises one itself when a member does not
/// come in time. Members that have met may read each other's memory until they arrive again; one
/// that leaves with an error waits until nobody reads any more, so that its memory may go.
class Meeting {
 public:
  /// Brings all ranks down: raises the fault and wakes all meetings.
  using Abort = std::function<void(int rank, const std::string& cause)>;

  /// members: world ranks, of `world` threads. `fault` must outlive the meeting; `abort` is called
  /// when a member does not come within stall_seconds (0 = no limit).
  Meeting(std::vector<int32_t> members, int world, double stall_seconds, Fault& fault, Abort abort);

  /// What a member does with the memory of the others once all have met.
  enum class Then : uint8_t { read, go };

  /// Waits until all members are here. `what` names the call in messages. Throws PeerError once
  /// the fault is raised; a member that goes on without reading has met all the same when the fault
  /// comes later.
  void meet(int member, const std::string& what, Then then = Then::read);
  /// For a member that fails after it has met and has raised the fault: returns when its memory may
  /// go.
  void leave_after_failure(int member);
  /// The fault was raised: wakes all who wait.
  void wake() noexcept;
  const std::vector<int32_t>& members() const { return members_; }

 private:
  [[noreturn]] void leave(std::unique_lock<std::mutex>& lock);
  void wait_for_others(std::unique_lock<std::mutex>& lock, int member, uint64_t epoch,
                       const std::string& what);
  void end_reading(int member);

  const std::vector<int32_t> members_;
  const double stall_seconds_;
  const int spins_;
  Fault& fault_;
  const Abort abort_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> epoch_ = 0;  // completed meetings
  std::vector<char> here_;           // who has come to the present one
  size_t count_ = 0;
  std::vector<char> reading_;
  int readers_ = 0;
};

}  // namespace weft
