#include "weft/comm/fault.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

namespace weft {

bool Fault::raise(int rank, std::string_view cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (raised()) return false;
  rank_ = rank;
  try {
    cause_ = cause;
  } catch (...) {
    cause_.clear();  // no memory for the text; the rank is still told
  }
  raised_.store(true, std::memory_order_release);
  return true;
}

int Fault::rank() const {
  const std::lock_guard lock(mutex_);
  return rank_;
}

std::string Fault::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Fault::throw_peer_error() const {
  throw PeerError("comm", fmt::format("rank {}: {}", rank(), cause()));
}

ErrorText describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {known.code(), known.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::resource, "[memory] got no more memory; try a smaller configuration"};
  } catch (const std::exception& other) {
    return {ExitCode::bug, fmt::format("[bug] got {}", other.what())};
  } catch (...) {
    return {ExitCode::bug, "[bug] got an exception of an unknown type"};
  }
}

bool speaks_for_all(std::span<const RankEnd> ends, int first) {
  const ExitCode code = ends[static_cast<size_t>(first)].error.code;
  if (code == ExitCode::usage || code == ExitCode::alarm || code == ExitCode::interrupted) {
    return true;
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].failed || ends[i].error.code != code) return false;
    if (code == ExitCode::peer && i != static_cast<size_t>(first)) return false;
  }
  return true;
}

std::atomic<int64_t>& Traffic::counter(const std::string& axis) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<std::atomic<int64_t>>& counter = counters_[axis];
  if (counter == nullptr) counter = std::make_unique<std::atomic<int64_t>>(0);
  return *counter;
}

std::map<std::string, int64_t> Traffic::received() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> result;
  for (const auto& [axis, counter] : counters_) result[axis] = counter->load();
  return result;
}

}  // namespace weft
