// What the thread ranks of a process share.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/fault.h"
#include "weft/comm/thread/meeting.h"

namespace weft {

/// What a member shows the others of its group during a collective.
struct ThreadCall {
  const KernelArgs* args = nullptr;
  const std::string* signature = nullptr;
};

struct ThreadGroup {
  ThreadGroup(std::vector<int32_t> members, int world, double stall_seconds, Fault& fault,
              Meeting::Abort abort)
      : calls(members.size()),
        meeting(std::move(members), world, stall_seconds, fault, std::move(abort)) {}

  std::vector<ThreadCall> calls;  // per member
  Meeting meeting;
};

struct ThreadChannel {
  std::vector<std::string> messages;  // per rank
  std::unique_ptr<Meeting> meeting;
};

class ThreadWorld {
 public:
  ThreadWorld(int size, double stall_seconds);

  int size() const { return size_; }
  const Fault& fault() const { return fault_; }
  ThreadGroup& group(std::span<const int32_t> members);
  ThreadChannel& channel(Channel channel) { return channels_[static_cast<size_t>(channel)]; }
  void abort(int rank, std::string_view cause) noexcept;

 private:
  Meeting::Abort aborter();

  const int size_;
  const double stall_seconds_;
  Fault fault_;
  std::mutex mutex_;  // of groups_
  std::map<std::vector<int32_t>, std::unique_ptr<ThreadGroup>> groups_;
  std::array<ThreadChannel, kNumChannels> channels_;
};

/// The communicator of one rank; `world` must outlive it and its kernels.
std::unique_ptr<Communicator> make_thread_communicator(ThreadWorld& world, int rank);

/// One collective of one member.
std::unique_ptr<Kernel> make_thread_collective(ThreadWorld& world, Traffic& traffic,
                                               const KernelSpec& spec,
                                               std::span<const int32_t> group, int rank);

}  // namespace weft
