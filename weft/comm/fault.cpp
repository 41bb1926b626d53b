#include "weft/comm/fault.h"

#include <fmt/core.h>

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

ErrorData run_error(std::span<const RankEnd> ends, int first) {
  const ErrorData& error = ends[static_cast<size_t>(first)].error;
  if (speaks_for_all(ends, first)) return error;
  return {ExitCode::peer, fmt::format("[comm] rank {}: {}", first, error.text)};
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
