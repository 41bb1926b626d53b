// What the parts of the mpi communicator share: the MPI communicators, waiting that ends when a
// rank fails, and the messages by which a rank brings the others down.
#pragma once

#include <mpi.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/fault.h"

namespace weft {

/// Requests of one call and the ranks at their other ends.
class MpiRequests {
 public:
  explicit MpiRequests(size_t capacity = 0) {
    requests_.reserve(capacity);
    peers_.reserve(capacity);
    sends_.reserve(capacity);
  }
  void clear() {
    requests_.clear();
    peers_.clear();
    sends_.clear();
  }
  MPI_Request* add(int32_t peer, bool send) {
    peers_.push_back(peer);
    sends_.push_back(send ? 1 : 0);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }
  std::vector<MPI_Request>& requests() { return requests_; }
  int32_t peer(size_t i) const { return peers_[i]; }
  bool is_send(size_t i) const { return sends_[i] != 0; }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int32_t> peers_;
  std::vector<char> sends_;
};

/// Pauses between looks at something that is not there yet: short at first, longer later.
class Backoff {
 public:
  void pause();

 private:
  int rounds_ = 0;
};

class MpiWorld {
 public:
  /// MPI is initialised with MPI_THREAD_MULTIPLE. All ranks make their world at the same time.
  explicit MpiWorld(double stall_seconds);
  /// Leaves the MPI communicators to MPI_Finalize.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  double stall_seconds() const { return stall_seconds_; }
  MPI_Comm collectives() const { return collectives_; }
  MPI_Comm channel(Channel channel) const { return channels_[static_cast<size_t>(channel)]; }
  MPI_Comm endings() const { return endings_; }
  /// Keeps the messages of groups apart that have two ranks in common.
  int group_tag(std::span<const int32_t> group);

  /// Throws PeerError once a rank has failed. Every call begins with it: a rank that has left may
  /// have freed what it was about to send.
  void check_fault();
  /// Starts to send or receive; sizes that fit an int.
  void send(MpiRequests& requests, const void* data, int64_t bytes, int32_t to, int tag,
            MPI_Comm comm);
  void receive(MpiRequests& requests, void* data, int64_t bytes, int32_t from, int tag,
               MPI_Comm comm);
  /// Returns when all requests are done. Throws PeerError when a rank fails meanwhile, or when
  /// the others do not answer within `limit` (0 = no limit); the buffers may then go.
  void wait(MpiRequests& requests, const std::string& what, double limit);

  const Fault& fault() const { return fault_; }
  /// Looks whether another rank has failed; true once one has.
  bool poll_fault() noexcept;
  void abort(std::string_view cause) noexcept;

 private:
  void check(int code, const std::string& what);
  void drop(MpiRequests& requests) noexcept;
  [[noreturn]] void stalled(MpiRequests& requests, const std::string& what, double limit);

  int rank_ = 0;
  int size_ = 1;
  int largest_tag_ = 0;
  const double stall_seconds_;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm faults_ = MPI_COMM_NULL;
  MPI_Comm endings_ = MPI_COMM_NULL;
  std::array<MPI_Comm, kNumChannels> channels_{};

  std::mutex tags_mutex_;
  std::map<int, std::vector<int32_t>> tags_;

  Fault fault_;
  std::mutex fault_mutex_;  // of what follows
  MPI_Request fault_request_ = MPI_REQUEST_NULL;
  std::vector<char> fault_text_;
  std::string sent_cause_;
};

std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world);
std::unique_ptr<Kernel> make_mpi_collective(MpiWorld& world, Traffic& traffic,
                                            const KernelSpec& spec, std::span<const int32_t> group);

}  // namespace weft
