#include "weft/comm/thread/thread_world.h"

#include <numeric>

namespace weft {
namespace {

const char* channel_name(Channel channel) {
  return channel == Channel::train ? "the train channel" : "the checkpoint channel";
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}

  std::string_view name() const override { return "thread"; }
  int rank() const override { return rank_; }
  int world() const override { return world_.size(); }

  std::unique_ptr<Kernel> prepare(const KernelSpec& spec, std::span<const int32_t> group) override {
    return make_thread_collective(world_, traffic_, spec, group, rank_);
  }

  std::vector<std::string> gather(Channel channel, std::string_view message) override {
    const std::string what = std::string("gather on ") + channel_name(channel);
    ThreadChannel& shared = enter(channel);
    shared.messages[static_cast<size_t>(rank_)] = message;
    shared.meeting->meet(rank_, what);
    std::vector<std::string> result;
    if (rank_ == 0) result = shared.messages;
    shared.meeting->meet(rank_, what, Meeting::Then::go);
    return result;
  }

  std::string broadcast(Channel channel, std::string_view message) override {
    const std::string what = std::string("broadcast on ") + channel_name(channel);
    ThreadChannel& shared = enter(channel);
    if (rank_ == 0) shared.messages[0] = message;
    shared.meeting->meet(rank_, what);
    std::string result = shared.messages[0];
    shared.meeting->meet(rank_, what, Meeting::Then::go);
    return result;
  }

  void barrier(Channel channel) override {
    enter(channel).meeting->meet(rank_, std::string("barrier on ") + channel_name(channel),
                                 Meeting::Then::go);
  }

  void abort(std::string_view cause) noexcept override { world_.abort(rank_, cause); }

  std::map<std::string, int64_t> received() const override { return traffic_.received(); }

 private:
  /// Once the fault is raised a rank may still be reading the messages: nobody changes them then.
  ThreadChannel& enter(Channel channel) {
    if (world_.fault().raised()) world_.fault().throw_peer_error();
    return world_.channel(channel);
  }

  ThreadWorld& world_;
  const int rank_;
  Traffic traffic_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size, double stall_seconds)
    : size_(size), stall_seconds_(stall_seconds) {
  std::vector<int32_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (ThreadChannel& channel : channels_) {
    channel.messages.resize(all.size());
    channel.meeting = std::make_unique<Meeting>(all, size_, stall_seconds_, fault_, aborter());
  }
}

Meeting::Abort ThreadWorld::aborter() {
  return [this](int rank, const std::string& cause) { abort(rank, cause); };
}

ThreadGroup& ThreadWorld::group(std::span<const int32_t> members) {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t> key(members.begin(), members.end());
  std::unique_ptr<ThreadGroup>& group = groups_[key];
  if (group == nullptr) {
    group = std::make_unique<ThreadGroup>(std::move(key), size_, stall_seconds_, fault_, aborter());
  }
  return *group;
}

void ThreadWorld::abort(int rank, std::string_view cause) noexcept {
  fault_.raise(rank, cause);
  const std::lock_guard lock(mutex_);
  for (const auto& [members, group] : groups_) group->meeting.wake();
  for (const ThreadChannel& channel : channels_) channel.meeting->wake();
}

std::unique_ptr<Communicator> make_thread_communicator(ThreadWorld& world, int rank) {
  return std::make_unique<ThreadCommunicator>(world, rank);
}

}  // namespace weft
