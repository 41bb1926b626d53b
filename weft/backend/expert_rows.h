// Where the rows of experts lie, for the kernels of every backend: rows [E,B,C,H] with a capacity,
// [B,R,H] without (docs/moe.md). Plain arithmetic on counts; nothing is owned.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weft/ir/kernel.h"

namespace weft {

class ExpertRows {
 public:
  /// `rows` and `counts` as an operator has them here; `data` are the counts, [B,E] or, of experts
  /// that are cut with a capacity, [B,local E].
  ExpertRows(const Attrs& attrs, const TensorType& rows, const TensorType& counts,
             const int32_t* data)
      : capacity_(rows.shape.size() == 4 ? rows.shape[2] : 0),
        sequences_(counts.shape[0]),
        columns_(counts.shape[1]),
        per_sequence_(capacity_ > 0 ? 0 : rows.shape[1]),
        first_(attrs.get_int("first_expert", 0)),
        experts_(attrs.get_int("num_experts", columns_)),
        counts_(data) {}

  /// Experts that are here, and sequences.
  int64_t experts() const { return experts_; }
  int64_t sequences() const { return sequences_; }

  /// Rows of local expert `e` and sequence `b` that belong to tokens, and the index of the first.
  int64_t count(int64_t e, int64_t b) const { return counts_[b * columns_ + column(e)]; }
  int64_t begin(int64_t e, int64_t b) const {
    if (capacity_ > 0) return (e * sequences_ + b) * capacity_;
    return b * per_sequence_ + offset(b, column(e));
  }
  /// Rows of all sequences of local expert `e`.
  int64_t total(int64_t e) const {
    int64_t sum = 0;
    for (int64_t b = 0; b < sequences_; ++b) sum += count(e, b);
    return sum;
  }

  /// Row of a slot that the router gave; -1 when it was dropped or its expert is not here.
  int64_t row_of(int64_t b, int32_t slot) const {
    if (slot < 0) return -1;
    if (capacity_ > 0) {
      const int64_t e = slot / capacity_ - first_;
      if (e < 0 || e >= experts_) return -1;
      return (e * sequences_ + b) * capacity_ + slot % capacity_;
    }
    if (experts_ < columns_ && (slot < offset(b, first_) || slot >= offset(b, first_ + experts_))) {
      return -1;
    }
    return b * per_sequence_ + slot;
  }

  /// Calls used(first row, rows) for every run of rows that tokens of the experts here have.
  template <class F>
  void for_used(const F& used) const {
    for (int64_t e = 0; capacity_ > 0 && e < experts_; ++e) {
      for (int64_t b = 0; b < sequences_; ++b) used(begin(e, b), count(e, b));
    }
    for (int64_t b = 0; capacity_ == 0 && b < sequences_; ++b) {
      const int64_t first = offset(b, first_);
      used(b * per_sequence_ + first, offset(b, first_ + experts_) - first);
    }
  }
  /// Calls unused(first row, rows) for every other run of rows.
  template <class F>
  void for_unused(const F& unused) const {
    const auto tell = [&](int64_t first, int64_t end) {
      if (end > first) unused(first, end - first);
    };
    if (capacity_ > 0) {
      for (int64_t e = 0; e < experts_; ++e) {
        for (int64_t b = 0; b < sequences_; ++b) {
          tell(begin(e, b) + count(e, b), begin(e, b) + capacity_);
        }
      }
      return;
    }
    for (int64_t b = 0; b < sequences_; ++b) {
      const int64_t start = b * per_sequence_;
      tell(start, start + offset(b, first_));
      tell(start + offset(b, first_ + experts_), start + per_sequence_);
    }
  }

 private:
  /// Column of counts: without a capacity they are those of all experts.
  int64_t column(int64_t e) const { return capacity_ > 0 ? e : first_ + e; }
  int64_t offset(int64_t b, int64_t experts) const {
    int64_t sum = 0;
    for (int64_t e = 0; e < experts; ++e) sum += counts_[b * columns_ + e];
    return sum;
  }

  int64_t capacity_, sequences_, columns_, per_sequence_, first_, experts_;
  const int32_t* counts_;
};

}  // namespace weft
