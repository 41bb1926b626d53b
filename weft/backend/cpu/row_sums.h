// Sums over rows that give the same bits for every team size: rows are cut into fixed blocks, each
// block is summed by one worker into its own partial row, and the partial rows are added in order.
#pragma once

#include <cstring>

#include "weft/backend/cpu/parallel.h"
#include "weft/base/check.h"

namespace weft::cpu {

class RowSums {
 public:
  /// Sums of `width` columns over `rows` rows.
  RowSums(int64_t rows, int64_t width) : rows_(rows), width_(width) {
    // At least 16 rows per block and at most 64 blocks bound the partial rows' memory.
    block_rows_ = std::max<int64_t>(16, (rows + 63) / 64);
    num_blocks_ = (rows + block_rows_ - 1) / block_rows_;
    stride_ = round_up(width, 16);
  }

  int64_t workspace_bytes() const { return num_blocks_ * stride_ * 4; }

  /// Calls f(begin, end, partial) for every block; f adds rows [begin, end) to partial[width].
  template <class F>
  void accumulate(int threads, float* workspace, const F& f) const {
    parallel_tasks(threads, num_blocks_, [&](int64_t block) {
      float* partial = workspace + block * stride_;
      std::memset(partial, 0, static_cast<size_t>(width_) * 4);
      f(block * block_rows_, std::min(rows_, (block + 1) * block_rows_), partial);
    });
  }

  /// to[j] = acc[j] + all partials, in order and in double; `acc` may be nullptr or `to`.
  void combine(int threads, const float* workspace, const float* acc, float* to) const {
    parallel_range(threads, width_, 16, 512, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        double sum = acc == nullptr ? 0.0 : acc[j];
        for (int64_t block = 0; block < num_blocks_; ++block) sum += workspace[block * stride_ + j];
        to[j] = static_cast<float>(sum);
      }
    });
  }

 private:
  int64_t rows_, width_, block_rows_, num_blocks_, stride_;
};

}  // namespace weft::cpu
