#include "weft/comm/mpi/mpi_world.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "weft/base/check.h"
#include "weft/comm/collective_call.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Longest cause that is sent: short enough that MPI buffers it and no rank waits for another.
constexpr size_t kCauseBytes = 2000;
// How long a failing rank lets transfers that have begun come to their end.
constexpr auto kDropReceives = std::chrono::milliseconds(1000);
constexpr auto kDropSends = std::chrono::milliseconds(500);
// Looks for a failure before a call begins: as many as it takes to work off what has come
// meanwhile.
constexpr int kPolls = 8;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

MPI_Comm duplicate_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

}  // namespace

void Backoff::pause() {
  ++rounds_;
  if (rounds_ < 32) return;
  if (rounds_ < 2000) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(rounds_ < 4000 ? 50 : 500));
  }
}

MpiWorld::MpiWorld(double stall_seconds)
    : stall_seconds_(stall_seconds), fault_text_(kCauseBytes + 1) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  collectives_ = duplicate_world();
  faults_ = duplicate_world();
  endings_ = duplicate_world();
  for (MPI_Comm& channel : channels_) channel = duplicate_world();
  int* limit = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
  largest_tag_ = found != 0 ? *limit : 32767;
  MPI_Irecv(fault_text_.data(), static_cast<int>(fault_text_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0,
            faults_, &fault_request_);
}

MpiWorld::~MpiWorld() {
  if (fault_request_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&fault_request_);
  MPI_Wait(&fault_request_, MPI_STATUS_IGNORE);
}

int MpiWorld::group_tag(std::span<const int32_t> group) {
  uint64_t hash = 14695981039346656037U;
  for (const int32_t rank : group) hash = (hash ^ static_cast<uint32_t>(rank)) * 1099511628211U;
  hash ^= hash >> 32;
  const int tag = static_cast<int>(hash % static_cast<uint64_t>(largest_tag_));
  const std::vector<int32_t> members(group.begin(), group.end());
  const std::lock_guard lock(tags_mutex_);
  const auto [entry, added] = tags_.emplace(tag, members);
  WEFT_CHECK(added || entry->second == members, "comm", "two groups of rank {} got the tag {}",
             rank_, tag);
  return tag;
}

void MpiWorld::check(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw PeerError("comm", fmt::format("got an MPI error in {} ({}), expected the other ranks to "
                                      "take part; try looking at what they last logged",
                                      what, std::string_view(text, static_cast<size_t>(length))));
}

void MpiWorld::check_fault() {
  for (int i = 0; i < kPolls; ++i) {
    if (poll_fault()) fault_.throw_peer_error();
  }
}

void MpiWorld::send(MpiRequests& requests, const void* data, int64_t bytes, int32_t to, int tag,
                    MPI_Comm comm) {
  check(MPI_Isend(data, narrow<int>(bytes), MPI_BYTE, to, tag, comm, requests.add(to, true)),
        "a send");
}

void MpiWorld::receive(MpiRequests& requests, void* data, int64_t bytes, int32_t from, int tag,
                       MPI_Comm comm) {
  check(MPI_Irecv(data, narrow<int>(bytes), MPI_BYTE, from, tag, comm, requests.add(from, false)),
        "a receive");
}

void MpiWorld::wait(MpiRequests& requests, const std::string& what, double limit) {
  std::vector<MPI_Request>& list = requests.requests();
  const int count = static_cast<int>(list.size());
  const Clock::time_point start = Clock::now();
  Backoff backoff;
  while (true) {
    int done = 0;
    const int code = MPI_Testall(count, list.data(), &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
      drop(requests);
      // The reason is often that a rank has failed: its message is the better cause.
      check_fault();
      check(code, what);
    }
    if (done != 0) return;
    if (poll_fault()) {
      drop(requests);
      fault_.throw_peer_error();
    }
    if (limit > 0 && seconds_since(start) > limit) stalled(requests, what, limit);
    backoff.pause();
  }
}

void MpiWorld::stalled(MpiRequests& requests, const std::string& what, double limit) {
  std::vector<int32_t> missing;
  for (size_t i = 0; i < requests.requests().size(); ++i) {
    MPI_Request request = requests.requests()[i];
    int done = 1;
    if (request != MPI_REQUEST_NULL) MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    if (done == 0) missing.push_back(requests.peer(i));
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  abort(stall_cause(missing, what, limit));
  drop(requests);
  fault_.throw_peer_error();
}

void MpiWorld::drop(MpiRequests& requests) noexcept {
  // Receives that nothing has come for are cancelled. Sends cannot be: those that are under way
  // end soon, the others nobody asks for any more.
  std::vector<MPI_Request>& list = requests.requests();
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] != MPI_REQUEST_NULL && !requests.is_send(i)) MPI_Cancel(&list[i]);
  }
  const Clock::time_point start = Clock::now();
  Backoff backoff;
  while (true) {
    bool receives = false;
    bool sends = false;
    for (size_t i = 0; i < list.size(); ++i) {
      int done = 1;
      if (list[i] != MPI_REQUEST_NULL) MPI_Test(&list[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) (requests.is_send(i) ? sends : receives) = true;
    }
    const auto waited = Clock::now() - start;
    if ((!receives || waited > kDropReceives) && (!sends || waited > kDropSends)) break;
    backoff.pause();
  }
  for (MPI_Request& request : list) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

bool MpiWorld::poll_fault() noexcept {
  if (fault_.raised()) return true;
  const std::unique_lock lock(fault_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || fault_request_ == MPI_REQUEST_NULL) return fault_.raised();
  int done = 0;
  MPI_Status status;
  if (MPI_Test(&fault_request_, &done, &status) != MPI_SUCCESS || done == 0) return false;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  fault_.raise(status.MPI_SOURCE, {fault_text_.data(), static_cast<size_t>(std::max(bytes, 0))});
  return true;
}

void MpiWorld::abort(std::string_view cause) noexcept {
  cause = cause.substr(0, kCauseBytes);
  if (!fault_.raise(rank_, cause)) return;
  const std::lock_guard lock(fault_mutex_);
  try {
    sent_cause_ = cause;
  } catch (...) {
    sent_cause_.clear();
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(sent_cause_.data(), static_cast<int>(sent_cause_.size()), MPI_BYTE, rank, 0, faults_,
              &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

}  // namespace weft
