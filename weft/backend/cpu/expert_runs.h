// The rows of experts by runs: pieces of memory whose rows lie one behind the other.
#pragma once

#include <algorithm>

#include "weft/backend/cpu/parallel.h"
#include "weft/backend/expert_rows.h"

namespace weft::cpu {

/// Splits all `count` rows among the team, at least `least` per worker, and calls used(first, rows)
/// and unused(first, rows) for the runs of each share.
template <class Used, class Unused>
void over_runs(int threads, const ExpertRows& rows, int64_t count, int64_t least, const Used& used,
               const Unused& unused) {
  parallel_range(threads, count, 1, std::max<int64_t>(least, 1), [&](int64_t begin, int64_t end) {
    const auto clipped = [&](const auto& tell) {
      return [&](int64_t first, int64_t rows_of_run) {
        const int64_t from = std::max(first, begin);
        const int64_t to = std::min(first + rows_of_run, end);
        if (to > from) tell(from, to - from);
      };
    };
    rows.for_used(clipped(used));
    rows.for_unused(clipped(unused));
  });
}

/// Walks forward through the rows of one expert, sequence after sequence.
class RunCursor {
 public:
  RunCursor(const ExpertRows& rows, int64_t expert) : rows_(&rows), expert_(expert) {}

  /// Moves to row `i` of the expert, which exists and is not before the run of the last one.
  void seek(int64_t i) {
    while (i >= end_) {
      ++sequence_;
      begin_ = end_;
      end_ += rows_->count(expert_, sequence_);
      if (i < end_) first_ = rows_->begin(expert_, sequence_);
    }
    at_ = i;
  }
  /// Where that row lies, and how many of the expert follow it there, with itself.
  int64_t row() const { return first_ + at_ - begin_; }
  int64_t left() const { return end_ - at_; }

 private:
  const ExpertRows* rows_;
  int64_t expert_, sequence_ = -1, begin_ = 0, end_ = 0, first_ = 0, at_ = 0;
};

/// Calls f(done, row, count) for the runs of rows [begin, begin + count) of the cursor's expert;
/// `done` rows came before.
template <class F>
void for_runs(RunCursor& cursor, int64_t begin, int64_t count, const F& f) {
  for (int64_t done = 0; done < count;) {
    cursor.seek(begin + done);
    const int64_t here = std::min(cursor.left(), count - done);
    f(done, cursor.row(), here);
    done += here;
  }
}

}  // namespace weft::cpu
