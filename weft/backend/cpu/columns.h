// Which columns of the vocabulary the logits of a call hold.
#pragma once

#include <cstdint>

#include "weft/backend/cpu/cpu_kernel.h"

namespace weft::cpu {

inline constexpr int32_t kIgnored = -100;  // label of a row without loss

/// All columns, or with attribute first_column a piece of them.
struct Columns {
  int64_t first = 0, count = 0;
  bool piece = false;

  Columns(const Attrs& attrs, int64_t columns)
      : first(attrs.get_int("first_column", 0)),
        count(columns),
        piece(attrs.contains("first_column")) {}

  /// BugError for labels that no piece can have.
  void check(const int32_t* labels, int64_t rows) const {
    for (int64_t t = 0; t < rows; ++t) {
      WEFT_CHECK(labels[t] == kIgnored || (labels[t] >= 0 && (piece || labels[t] < count)),
                 "cpu.cross_entropy", "label {} of {} classes", labels[t], count);
    }
  }
  /// Local column of a label, or -1 when another piece has it or the row is ignored.
  int64_t of(int32_t label) const {
    const int64_t column = label - first;
    return column >= 0 && column < count ? column : -1;
  }
};

}  // namespace weft::cpu
