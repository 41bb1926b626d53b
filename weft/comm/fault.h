// The first cause that brings all ranks down, and what becomes of the errors of all ranks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/raise.h"

namespace weft {

/// The first cause; thread-safe.
class Fault {
 public:
  /// True for the first call, the one that counts.
  bool raise(int rank, std::string_view cause) noexcept;
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// -1 while nothing was raised.
  int rank() const;
  std::string cause() const;
  /// PeerError "rank N: cause".
  [[noreturn]] void throw_peer_error() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> raised_ = false;
  int rank_ = -1;
  std::string cause_;
};

/// How one rank ended.
struct RankEnd {
  bool failed = false;
  ErrorData error;
};
/// Is the error of rank `first`, the one that failed first, that of the whole run? So when its
/// kind concerns all ranks (usage, alarm, interrupted) or when every rank failed by itself with
/// the same exit code. A PeerError of another rank is a consequence, never a failure by itself.
bool speaks_for_all(std::span<const RankEnd> ends, int first);
/// The error of the whole run: that of rank `first`, or PeerError "rank N: cause".
ErrorData run_error(std::span<const RankEnd> ends, int first);

/// Bytes received from other ranks, per axis.
class Traffic {
 public:
  /// The counter of an axis; lives as long as this object.
  std::atomic<int64_t>& counter(const std::string& axis);
  std::map<std::string, int64_t> received() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<std::atomic<int64_t>>> counters_;
};

}  // namespace weft
