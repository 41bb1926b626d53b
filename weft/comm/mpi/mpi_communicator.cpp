// The communicator of a process, and its control messages, which all go through rank 0.
#include <algorithm>
#include <cstring>
#include <limits>

#include "weft/comm/collective_call.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {
namespace {

constexpr int kTag = 0;
constexpr int64_t kPart = int64_t{64} << 20;  // of a long message

std::string on_channel(const char* what, Channel channel) {
  return std::string(what) +
         (channel == Channel::train ? " on the train channel" : " on the checkpoint channel");
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiWorld& world) : world_(world) {}

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return world_.rank(); }
  int world() const override { return world_.size(); }

  std::unique_ptr<Kernel> prepare(const KernelSpec& spec, std::span<const int32_t> group) override {
    return make_mpi_collective(world_, traffic_, spec, group);
  }

  std::vector<std::string> gather(Channel channel, std::string_view message) override {
    return collect(channel, message, on_channel("gather", channel));
  }

  std::string broadcast(Channel channel, std::string_view message) override {
    return spread(channel, message, on_channel("broadcast", channel));
  }

  void barrier(Channel channel) override {
    const std::string what = on_channel("barrier", channel);
    collect(channel, "", what);
    spread(channel, "", what);
  }

  void abort(std::string_view cause) noexcept override { world_.abort(cause); }
  std::map<std::string, int64_t> received() const override { return traffic_.received(); }

 private:
  /// Rank 0 sees who is missing; the others give it the time to say so before they blame it.
  double limit() const {
    const double seconds = world_.stall_seconds();
    return world_.rank() == 0 || seconds <= 0 ? seconds : 1.25 * seconds + 1;
  }

  std::vector<std::string> collect(Channel channel, std::string_view message,
                                   const std::string& what) {
    world_.check_fault();
    MpiRequests requests;
    if (world_.rank() != 0) {
      const auto bytes = static_cast<int64_t>(message.size());
      send(requests, channel, message, bytes, 0);
      world_.wait(requests, what, limit());
      return {};
    }
    const auto ranks = static_cast<size_t>(world_.size());
    std::vector<int64_t> sizes(ranks, 0);
    for (size_t r = 1; r < ranks; ++r) receive_size(requests, channel, sizes[r], r);
    world_.wait(requests, what, limit());
    requests.clear();
    std::vector<std::string> messages(ranks);
    messages[0] = message;
    for (size_t r = 1; r < ranks; ++r) {
      messages[r].resize(static_cast<size_t>(sizes[r]));
      receive(requests, channel, messages[r], r);
    }
    world_.wait(requests, what, limit());
    return messages;
  }

  std::string spread(Channel channel, std::string_view message, const std::string& what) {
    world_.check_fault();
    MpiRequests requests;
    if (world_.rank() == 0) {
      const auto bytes = static_cast<int64_t>(message.size());
      for (int r = 1; r < world_.size(); ++r) send(requests, channel, message, bytes, r);
      world_.wait(requests, what, limit());
      return std::string(message);
    }
    int64_t size = 0;
    receive_size(requests, channel, size, 0);
    world_.wait(requests, what, limit());
    requests.clear();
    std::string result(static_cast<size_t>(size), '\0');
    receive(requests, channel, result, 0);
    world_.wait(requests, what, limit());
    return result;
  }

  /// The size, then the parts. `bytes` must live until the requests are done.
  void send(MpiRequests& requests, Channel channel, std::string_view message, const int64_t& bytes,
            int to) {
    const MPI_Comm comm = world_.channel(channel);
    world_.send(requests, &bytes, sizeof bytes, to, kTag, comm);
    for (int64_t at = 0; at < bytes; at += kPart) {
      world_.send(requests, message.data() + at, std::min(kPart, bytes - at), to, kTag, comm);
    }
  }

  void receive_size(MpiRequests& requests, Channel channel, int64_t& size, size_t from) {
    world_.receive(requests, &size, sizeof size, static_cast<int32_t>(from), kTag,
                   world_.channel(channel));
  }

  void receive(MpiRequests& requests, Channel channel, std::string& message, size_t from) {
    const auto bytes = static_cast<int64_t>(message.size());
    for (int64_t at = 0; at < bytes; at += kPart) {
      world_.receive(requests, message.data() + at, std::min(kPart, bytes - at),
                     static_cast<int32_t>(from), kTag, world_.channel(channel));
    }
  }

  MpiWorld& world_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world) {
  return std::make_unique<MpiCommunicator>(world);
}

}  // namespace weft
