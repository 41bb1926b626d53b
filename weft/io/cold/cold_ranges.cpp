#include "weft/io/cold/cold_ranges.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/io/cold/cold_options.h"

namespace weft {

void ColdRanges::check_free(int64_t begin, int64_t end, bool write) const {
  for (const Use& use : uses_) {
    if (end <= use.begin || begin >= use.end || !(write || use.write)) continue;
    throw BugError("cold tier",
                   fmt::format("got a {} of bytes {} to {} during a {} of bytes {} to {}, expected "
                               "transfers that overlap to wait for each other",
                               write ? "write" : "read", begin, end, use.write ? "write" : "read",
                               use.begin, use.end));
  }
}

void ColdRanges::release(int64_t begin, int64_t end, bool write) {
  const auto use = std::find_if(uses_.begin(), uses_.end(), [&](const Use& other) {
    return other.begin == begin && other.end == end && other.write == write;
  });
  WEFT_CHECK(use != uses_.end(), "cold tier", "bytes {} to {} are not in use", begin, end);
  uses_.erase(use);
}

void ColdRanges::begin_read(int64_t begin, int64_t end) {
  const std::lock_guard lock(mutex_);
  check_free(begin, end, false);
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  int64_t at = begin;
  for (; at < end && range != ranges_.end() && range->first <= at; ++range) {
    at = std::max(at, range->second.end);
  }
  WEFT_CHECK(at >= end, "cold tier",
             "got a read of bytes {} to {}, but byte {} holds nothing that was written", begin, end,
             at);
  uses_.push_back({begin, end, false});
}

void ColdRanges::end_read(int64_t begin, int64_t end) {
  const std::lock_guard lock(mutex_);
  release(begin, end, false);
}

void ColdRanges::begin_write(int64_t begin, int64_t end) {
  const std::lock_guard lock(mutex_);
  check_free(begin, end, true);
  const int64_t padded = round_up(end, kColdAlign);
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  while (range != ranges_.end() && range->first < padded) {
    const ColdRange old = range->second;
    if (old.end <= begin) {
      ++range;
      continue;
    }
    range = ranges_.erase(range);
    if (old.begin < begin) ranges_[old.begin] = {old.begin, begin, 0, false};
    if (old.end > padded) ranges_[padded] = {padded, old.end, 0, false};
  }
  uses_.push_back({begin, end, true});
}

void ColdRanges::end_write(int64_t begin, int64_t end, const std::vector<ColdRange>& written) {
  const std::lock_guard lock(mutex_);
  release(begin, end, true);
  for (const ColdRange& range : written) ranges_[range.begin] = range;
}

void ColdRanges::checked_in(int64_t begin, int64_t end, std::vector<ColdRange>& ranges) const {
  const std::lock_guard lock(mutex_);
  for (auto range = ranges_.lower_bound(begin); range != ranges_.end() && range->second.end <= end;
       ++range) {
    if (range->second.checked) ranges.push_back(range->second);
  }
}

}  // namespace weft
