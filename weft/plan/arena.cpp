// Offline placement of blocks with known lifetimes ("dynamic storage allocation"). A block is put
// at the lowest gap among the blocks already placed that are in use at the same time; the result
// depends on the order of placement, so several orders are tried, then the best one is improved by
// moving whatever sits at the very top to the front.
#include <algorithm>
#include <bit>
#include <numeric>

#include "weft/base/check.h"
#include "weft/plan/passes.h"

namespace weft {
namespace {

struct Placed {
  int32_t first = 0;
  int32_t last = 0;
  int64_t offset = 0;
  int64_t end = 0;
};

/// Placed blocks by time. Level l cuts the steps into buckets of kBase << l steps; a block lives on
/// the lowest level where it fits one bucket's length, hence in at most two buckets.
class TimeIndex {
 public:
  TimeIndex(int32_t num_steps) {
    int level = 0;
    do {
      levels_.emplace_back(static_cast<size_t>((num_steps >> (kBaseLog + level)) + 1));
    } while ((int64_t{1} << (kBaseLog + level++)) < num_steps);
  }

  void clear() {
    for (Level& level : levels_) {
      for (std::vector<Placed>& bucket : level) bucket.clear();
    }
  }

  void insert(const Placed& block) {
    const int level = level_of(block.last - block.first + 1);
    Level& buckets = levels_[static_cast<size_t>(level)];
    const int shift = kBaseLog + level;
    for (int32_t b = block.first >> shift; b <= block.last >> shift; ++b) {
      buckets[static_cast<size_t>(b)].push_back(block);
    }
  }

  /// Appends (offset, end) of every block in use during some step of first..last.
  void overlaps(int32_t first, int32_t last, std::vector<std::pair<int64_t, int64_t>>& out,
                int64_t& visited) const {
    for (size_t level = 0; level < levels_.size(); ++level) {
      const int shift = kBaseLog + static_cast<int>(level);
      const int32_t first_bucket = first >> shift;
      for (int32_t b = first_bucket; b <= last >> shift; ++b) {
        const std::vector<Placed>& bucket = levels_[level][static_cast<size_t>(b)];
        visited += static_cast<int64_t>(bucket.size());
        for (const Placed& block : bucket) {
          if (block.first > last || block.last < first) continue;
          // A block in two buckets is reported by the first of them that the query visits.
          if (b > first_bucket && (block.first >> shift) < b) continue;
          out.emplace_back(block.offset, block.end);
        }
      }
    }
  }

 private:
  using Level = std::vector<std::vector<Placed>>;
  static constexpr int kBaseLog = 4;

  static int level_of(int32_t span) {
    const int log = std::bit_width(static_cast<uint32_t>(span - 1));
    return std::max(0, log - kBaseLog);
  }

  std::vector<Level> levels_;
};

class Placer {
 public:
  Placer(std::span<const ArenaItem> items, int32_t num_steps)
      : items_(items), offsets_(items.size()), index_(num_steps) {}

  /// Places all blocks in `order`; returns the bytes spanned, or gives up with `limit` once
  /// `limit` is reached.
  int64_t place(std::span<const int32_t> order, int64_t limit, bool best_fit) {
    index_.clear();
    int64_t peak = 0;
    for (int32_t id : order) {
      const ArenaItem& item = items_[static_cast<size_t>(id)];
      const int64_t bytes = round_up(item.bytes, kBufferAlignment);
      const int64_t offset = find_gap(item, bytes, best_fit);
      offsets_[static_cast<size_t>(id)] = offset;
      peak = std::max(peak, offset + bytes);
      if (peak >= limit) return limit;
      index_.insert({item.first, item.last, offset, offset + bytes});
    }
    return peak;
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t visited() const { return visited_; }

 private:
  int64_t find_gap(const ArenaItem& item, int64_t bytes, bool best_fit) {
    busy_.clear();
    index_.overlaps(item.first, item.last, busy_, visited_);
    std::sort(busy_.begin(), busy_.end());
    visited_ += 4 * static_cast<int64_t>(busy_.size());
    int64_t top = 0;
    int64_t best = -1;
    int64_t best_gap = 0;
    for (const auto& [offset, end] : busy_) {
      const int64_t gap = offset - top;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        if (!best_fit) return top;
        best = top;
        best_gap = gap;
      }
      top = std::max(top, end);
    }
    return best >= 0 ? best : top;
  }

  std::span<const ArenaItem> items_;
  std::vector<int64_t> offsets_;
  TimeIndex index_;
  std::vector<std::pair<int64_t, int64_t>> busy_;
  int64_t visited_ = 0;
};

/// The orders worth trying: by size, by size x lifetime, by lifetime, by time of creation.
std::vector<std::vector<int32_t>> candidate_orders(std::span<const ArenaItem> items,
                                                   const std::vector<int32_t>& ids) {
  const auto item = [&](int32_t id) -> const ArenaItem& { return items[static_cast<size_t>(id)]; };
  const auto span = [&](int32_t id) { return int64_t{item(id).last} - item(id).first + 1; };
  std::vector<std::vector<int32_t>> orders;
  const auto add = [&](auto key) {
    orders.push_back(ids);
    std::stable_sort(orders.back().begin(), orders.back().end(),
                     [&](int32_t a, int32_t b) { return key(a) > key(b); });
  };
  add([&](int32_t id) { return std::pair(item(id).bytes, span(id)); });
  add([&](int32_t id) {
    return std::pair(static_cast<double>(item(id).bytes) * static_cast<double>(span(id)),
                     item(id).bytes);
  });
  add([&](int32_t id) { return std::pair(span(id), item(id).bytes); });
  add([&](int32_t id) { return std::pair(int64_t{-item(id).first}, span(id)); });
  return orders;
}

/// Moves the blocks that end at `peak` to the front.
void promote_top(std::span<const ArenaItem> items, const std::vector<int64_t>& offsets,
                 int64_t peak, std::vector<int32_t>& order) {
  std::stable_partition(order.begin(), order.end(), [&](int32_t id) {
    const auto i = static_cast<size_t>(id);
    return offsets[i] + round_up(items[i].bytes, kBufferAlignment) == peak;
  });
}

}  // namespace

int64_t live_peak(std::span<const ArenaItem> items, int32_t* step) {
  int32_t num_steps = 0;
  for (const ArenaItem& item : items) num_steps = std::max(num_steps, item.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(num_steps) + 1, 0);
  for (const ArenaItem& item : items) {
    change[static_cast<size_t>(item.first)] += item.bytes;
    change[static_cast<size_t>(item.last) + 1] -= item.bytes;
  }
  int64_t live = 0;
  int64_t peak = 0;
  int32_t peak_step = 0;
  for (size_t i = 0; i < change.size(); ++i) {
    live += change[i];
    if (live > peak) {
      peak = live;
      peak_step = static_cast<int32_t>(i);
    }
  }
  if (step != nullptr) *step = peak_step;
  return peak;
}

int64_t place_items(std::span<ArenaItem> items, Effort effort) {
  const int most_promotions = effort == Effort::full ? 50 : 0;
  constexpr int64_t kWorkLimit = 150'000'000;  // block visits, about half a second

  std::vector<int32_t> ids;
  std::vector<ArenaItem> rounded(items.begin(), items.end());
  int32_t num_steps = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    WEFT_CHECK(items[i].first >= 0 && items[i].first <= items[i].last && items[i].bytes >= 0,
               "plan", "block of {} bytes is in use during steps {}..{}", items[i].bytes,
               items[i].first, items[i].last);
    rounded[i].bytes = round_up(items[i].bytes, kBufferAlignment);
    num_steps = std::max(num_steps, items[i].last + 1);
    if (items[i].bytes > 0) ids.push_back(static_cast<int32_t>(i));
  }
  const int64_t bound = live_peak(rounded);
  const int64_t good_enough = bound + bound / 100;

  Placer placer(rounded, num_steps);
  int64_t best = INT64_MAX;
  std::vector<int64_t> best_offsets(items.size(), 0);
  std::vector<int32_t> best_order;
  bool best_uses_best_fit = false;
  const auto attempt = [&](const std::vector<int32_t>& order, bool best_fit) {
    const int64_t peak = placer.place(order, best, best_fit);
    if (peak >= best) return;
    best = peak;
    best_offsets = placer.offsets();
    best_order = order;
    best_uses_best_fit = best_fit;
  };
  for (const std::vector<int32_t>& order : candidate_orders(rounded, ids)) {
    for (bool best_fit : {false, true}) {
      if (best > good_enough && (best == INT64_MAX || placer.visited() < kWorkLimit)) {
        attempt(order, best_fit);
      }
    }
  }
  std::vector<int32_t> order = best_order;
  std::vector<int64_t> offsets = best_offsets;
  int64_t peak = best;
  for (int i = 0; i < most_promotions && best > good_enough && placer.visited() < kWorkLimit; ++i) {
    promote_top(rounded, offsets, peak, order);
    peak = placer.place(order, INT64_MAX, best_uses_best_fit);
    offsets = placer.offsets();
    if (peak < best) {
      best = peak;
      best_offsets = offsets;
    }
  }
  for (size_t i = 0; i < items.size(); ++i) items[i].offset = best_offsets[i];
  return ids.empty() ? 0 : best;
}

}  // namespace weft
