// grouped_matmul and the gradient of its weights, on the packing and block kernel of the packed
// matmul (gemm_packed.h). All rows of an expert are one product, wherever they lie.
//
// Rows times weights: the team packs rows side by side, however their runs end; then every worker
// takes one expert and a range of columns at a time, packs those columns of the weight for itself
// and multiplies all rows of the expert by them, experts with the most rows first. Gradients: a
// worker takes a rectangle of one weight at a time and runs through the rows. The order of every
// sum depends on nothing but its length, so neither the team size nor the layout changes a bit.
#include <algorithm>
#include <cstring>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/expert_runs.h"
#include "weft/backend/cpu/gemm_packed.h"

namespace weft::cpu {
namespace {

constexpr int64_t kDepth = 256;              // k values per block: panels of A and B stay in L1
constexpr int64_t kRowBlock = 144;           // rows of A per block: stays in L2
constexpr int64_t kPackedFloats = 2 << 20;   // rows packed at a time: stay in L3
constexpr int64_t kRangeFloats = 128 << 10;  // columns of a weight packed by a worker: stay in L2
constexpr int64_t kRangeCols = 256;          // most columns of a range
constexpr int64_t kPackRows = 16;            // rows packed at a time when lanes are contiguous
constexpr int64_t kTasks = 4;                // per worker, at least, so that uneven experts balance

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// k values per block of a sum of `depth` values, as in the packed matmul.
int64_t block_depth(int64_t depth) {
  if (depth <= kDepth + kDepth / 2) return round_up(std::max<int64_t>(depth, 1), 8);
  return round_up(ceil_div(depth, ceil_div(depth, kDepth)), 8);
}

/// Rows [begin, begin + rows) of an expert, which are packed from row tile `tile` on.
struct Piece {
  int64_t expert = 0, begin = 0, rows = 0, tile = 0;
};

/// pack_a or pack_b of a matrix whose lanes are contiguous, into panels `panel_depth` deep: a few
/// rows at a time for all panels, so that memory is read in long pieces.
template <class Pack>
void pack_lanes(Pack pack, int64_t tile, const char* from, int64_t size, int64_t stride,
                int64_t lanes, int64_t depth, int64_t panel_depth, float* to) {
  for (int64_t k = 0; k < depth; k += kPackRows) {
    const int64_t rows = std::min(kPackRows, depth - k);
    for (int64_t row = k + rows; row < std::min(depth, k + rows + kPackRows); ++row) {
      for (int64_t byte = 0; byte < lanes * size; byte += 64) {
        __builtin_prefetch(from + row * stride * size + byte);
      }
    }
    for (int64_t lane = 0; lane < lanes; lane += tile) {
      pack(from + (k * stride + lane) * size, 1, stride, std::min(tile, lanes - lane), rows,
           to + lane * panel_depth + k * tile);
    }
  }
}

/// Most rows first.
void sort_pieces(Piece* pieces, int64_t count) {
  std::sort(pieces, pieces + count, [](const Piece& a, const Piece& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.tile < b.tile;
  });
}

// y[r] = w[e]^T rows[r]
class GroupedMatmul final : public CpuKernel {
 public:
  GroupedMatmul(const KernelSpec& spec, int threads)
      : attrs_(spec.attrs),
        rows_(spec.inputs.at(0)),
        counts_(spec.inputs.at(2)),
        isa_(gemm_isa()),
        transpose_w_(spec.attrs.get_bool("transpose_w", true)),
        float_(float_index(rows_.dtype)),
        size_(dtype_size(rows_.dtype)),
        inner_(rows_.shape.back()),
        outer_(spec.outputs.at(0).shape.back()),
        experts_(spec.inputs.at(1).shape.at(0)),
        threads_(std::max(threads, 1)) {
    depth_ = block_depth(inner_);
    padded_inner_ = std::max<int64_t>(inner_, 1);
    row_block_ = round_up(kRowBlock, isa_.tile_rows);
    const int64_t rows = num_rows(rows_.shape);
    // Every expert may leave a tile of its own unfinished.
    most_tiles_ =
        std::min(ceil_div(rows, isa_.tile_rows) + experts_,
                 ceil_div(std::max(kPackedFloats / padded_inner_, row_block_), isa_.tile_rows));
    range_cols_ = std::clamp(kRangeFloats / padded_inner_, 2 * isa_.tile_cols, kRangeCols);
    range_cols_ = std::min(round_up(range_cols_, isa_.tile_cols), round_up(outer_, isa_.tile_cols));
    while (range_cols_ > isa_.tile_cols && ranges() * experts_ < kTasks * threads_) {
      range_cols_ = round_up(range_cols_ / 2, isa_.tile_cols);
    }
    pieces_bytes_ = round_up((experts_ + 1) * static_cast<int64_t>(sizeof(Piece)), 64);
    rows_floats_ = round_up(most_tiles_ * isa_.tile_rows * padded_inner_, 16);
    weight_floats_ = round_up(range_cols_ * padded_inner_, 16);
    sums_floats_ = inner_ > depth_ && float_ != 0 ? round_up(row_block_ * range_cols_, 16) : 0;
    // Also holds the rows of a tile that come from several runs while they are packed.
    result_floats_ = round_up(isa_.tile_rows * std::max(range_cols_, padded_inner_), 16);
  }

  int64_t workspace_bytes() const override {
    return pieces_bytes_ + 4 * (rows_floats_ + threads_ * worker_floats());
  }

  void run(const KernelArgs& args) override {
    const ExpertRows rows(attrs_, rows_, counts_, in<int32_t>(args, 2));
    char* y = out<char>(args, 0);
    over_runs(
        threads_, rows, num_rows(rows_.shape), 65536 / (outer_ + 1), [](int64_t, int64_t) {},
        [&](int64_t first, int64_t count) {
          std::memset(y + first * outer_ * size_, 0, static_cast<size_t>(count * outer_ * size_));
        });
    if (outer_ == 0) return;
    auto* pieces = static_cast<Piece*>(args.workspace);
    auto* packed = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + pieces_bytes_);
    float* workers = packed + rows_floats_;
    for (int64_t expert = 0, begin = 0; expert < rows.experts();) {
      int64_t count = 0, tiles = 0;
      while (expert < rows.experts() && tiles < most_tiles_) {
        const int64_t left = rows.total(expert) - begin;
        if (left <= 0) {
          ++expert, begin = 0;
          continue;
        }
        const int64_t taken = std::min(left, (most_tiles_ - tiles) * isa_.tile_rows);
        pieces[count++] = {expert, begin, taken, tiles};
        tiles += ceil_div(taken, isa_.tile_rows);
        begin += taken;
      }
      if (count == 0) break;
      parallel_dealt(threads_, ceil_div(tiles, kPackTiles), [&](int64_t task, int64_t worker) {
        const int64_t first = task * kPackTiles;
        pack_rows(rows, in<char>(args, 0), pieces, first, std::min(tiles, first + kPackTiles),
                  packed, workers + worker * worker_floats());
      });
      sort_pieces(pieces, count);
      parallel_dynamic(threads_, count * ranges(), [&](int64_t task, int64_t worker) {
        multiply(rows, in<char>(args, 1), y, pieces[task / ranges()], task % ranges() * range_cols_,
                 packed, workers + worker * worker_floats());
      });
    }
  }

 private:
  static constexpr int64_t kPackTiles = 8;

  int64_t ranges() const { return std::max<int64_t>(1, ceil_div(outer_, range_cols_)); }
  int64_t worker_floats() const { return weight_floats_ + sums_floats_ + result_floats_; }

  /// Packs row tiles [tile, end): per piece, per block of k, tile after tile.
  void pack_rows(const ExpertRows& rows, const char* x, const Piece* piece, int64_t tile,
                 int64_t end, float* packed, float* gathered) const {
    while (tile < end) {
      while (tile >= piece->tile + ceil_div(piece->rows, isa_.tile_rows)) ++piece;
      RunCursor cursor(rows, piece->expert);
      const int64_t tiles = ceil_div(piece->rows, isa_.tile_rows);
      for (; tile < std::min(end, piece->tile + tiles); ++tile) {
        const int64_t at = (tile - piece->tile) * isa_.tile_rows;
        const int64_t lanes = std::min(isa_.tile_rows, piece->rows - at);
        cursor.seek(piece->begin + at);
        const char* from = x + cursor.row() * inner_ * size_;
        if (cursor.left() < lanes) {
          from = reinterpret_cast<const char*>(gathered);
          for_runs(cursor, piece->begin + at, lanes, [&](int64_t done, int64_t row, int64_t count) {
            std::memcpy(reinterpret_cast<char*>(gathered) + done * inner_ * size_,
                        x + row * inner_ * size_, static_cast<size_t>(count * inner_ * size_));
          });
        }
        float* to = packed + piece->tile * isa_.tile_rows * padded_inner_;
        for (int64_t k = 0; k < inner_; k += depth_) {
          const int64_t depth = std::min(depth_, inner_ - k);
          isa_.pack_a[float_](from + k * size_, inner_, 1, lanes, depth,
                              to + tiles * isa_.tile_rows * k + at * depth);
        }
      }
    }
  }

  /// Columns [col, col + range_cols_) of the rows of a piece.
  void multiply(const ExpertRows& rows, const char* w, char* y, const Piece& piece, int64_t col,
                const float* packed, float* scratch) const {
    const int64_t cols = std::min(range_cols_, outer_ - col);
    float* weight = scratch;
    float* sums = weight + weight_floats_;
    float* result = sums + sums_floats_;
    const char* from =
        w + (piece.expert * inner_ * outer_ + col * (transpose_w_ ? inner_ : 1)) * size_;
    if (transpose_w_) {
      isa_.pack_b[float_](from, inner_, 1, cols, inner_, weight);
    } else {
      pack_lanes(isa_.pack_b[float_], isa_.tile_cols, from, size_, outer_, cols, inner_, inner_,
                 weight);
    }
    const int64_t tiles = ceil_div(piece.rows, isa_.tile_rows);
    const float* a = packed + piece.tile * isa_.tile_rows * padded_inner_;
    RunCursor cursor(rows, piece.expert);
    for (int64_t row = 0, count = 0; row < piece.rows; row += count) {
      // Whole tiles of one run are written in place, a tile of several runs by way of `result`.
      const int64_t rest = piece.rows - row;
      cursor.seek(piece.begin + row);
      const int64_t run = std::min(cursor.left(), rest);
      const bool direct = run == rest || run >= isa_.tile_rows;
      const int64_t whole = run == rest ? rest : run / isa_.tile_rows * isa_.tile_rows;
      count = direct ? std::min(whole, row_block_) : std::min(rest, isa_.tile_rows);
      GemmStore store;
      store.c =
          direct ? y + (cursor.row() * outer_ + col) * size_ : reinterpret_cast<char*>(result);
      store.ldc = direct ? outer_ : range_cols_;
      store.dtype = float_;
      store.sums = float_ != 0 ? sums : static_cast<float*>(store.c);
      store.sums_stride = float_ != 0 ? range_cols_ : store.ldc;
      for (int64_t k = 0; k == 0 || k < inner_; k += depth_) {
        const int64_t depth = std::min(depth_, inner_ - k);
        store.first = k == 0;
        store.last = k + depth >= inner_;
        isa_.block(count, cols, depth, a + tiles * isa_.tile_rows * k + row * depth,
                   weight + k * isa_.tile_cols, inner_, store);
      }
      if (direct) continue;
      for_runs(cursor, piece.begin + row, count, [&](int64_t done, int64_t first, int64_t here) {
        for (int64_t i = 0; i < here; ++i) {
          std::memcpy(y + ((first + i) * outer_ + col) * size_,
                      reinterpret_cast<const char*>(result) + (done + i) * range_cols_ * size_,
                      static_cast<size_t>(cols * size_));
        }
      });
    }
  }

  Attrs attrs_;
  TensorType rows_, counts_;
  const GemmIsa& isa_;
  bool transpose_w_;
  int float_;
  int64_t size_, inner_, outer_, experts_;
  int threads_;
  int64_t depth_ = 0, padded_inner_ = 0, row_block_ = 0, most_tiles_ = 0, range_cols_ = 0;
  int64_t pieces_bytes_ = 0, rows_floats_ = 0, weight_floats_ = 0, sums_floats_ = 0,
          result_floats_ = 0;
};

/// Packs lanes [lane, lane + lanes) of rows [begin, begin + depth) of an expert, k being the rows.
struct RowPanels {
  const char* rows;
  int64_t size, width;  // bytes of an element, elements of a row

  template <class Pack>
  void to_panels(RunCursor cursor, Pack pack, int64_t tile, int64_t lane, int64_t lanes,
                 int64_t begin, int64_t depth, float* to) const {
    for_runs(cursor, begin, depth, [&](int64_t done, int64_t row, int64_t count) {
      pack_lanes(pack, tile, rows + (row * width + lane) * size, size, width, lanes, count, depth,
                 to + done * tile);
    });
  }
};

// dw[e] = acc[e] + sum over the rows r of expert e of rows[r] (x) drows[r]
class GroupedMatmulWgrad final : public CpuKernel {
 public:
  GroupedMatmulWgrad(const KernelSpec& spec, int threads)
      : attrs_(spec.attrs),
        rows_(spec.inputs.at(0)),
        counts_(spec.inputs.at(2)),
        isa_(gemm_isa()),
        transpose_w_(spec.attrs.get_bool("transpose_w", true)),
        float_(float_index(rows_.dtype)),
        experts_(spec.outputs.at(0).shape.at(0)),
        m_(spec.outputs[0].shape.at(1)),
        n_(spec.outputs[0].shape.at(2)),
        threads_(std::max(threads, 1)) {
    row_block_ = round_up(kRowBlock, isa_.tile_rows);
    m_range_ = std::min(2 * row_block_, round_up(m_, isa_.tile_rows));
    n_range_ = std::min(round_up(kRangeCols, isa_.tile_cols), round_up(n_, isa_.tile_cols));
    while (experts_ * m_ranges() * n_ranges() < kTasks * threads_ && m_range_ > isa_.tile_rows) {
      m_range_ = round_up(m_range_ / 2, isa_.tile_rows);
    }
    // No block of k is longer, whatever the number of rows.
    const int64_t depth =
        std::min(round_up(std::max<int64_t>(num_rows(rows_.shape), 1), 8), kDepth + kDepth / 2);
    pieces_bytes_ = round_up(experts_ * static_cast<int64_t>(sizeof(Piece)), 64);
    a_floats_ = round_up(std::min(row_block_, m_range_) * depth, 16);
    b_floats_ = round_up(n_range_ * depth, 16);
  }

  int64_t workspace_bytes() const override {
    return pieces_bytes_ + 4 * threads_ * (a_floats_ + b_floats_);
  }

  void run(const KernelArgs& args) override {
    if (m_ == 0 || n_ == 0) return;
    const ExpertRows rows(attrs_, rows_, counts_, in<int32_t>(args, 2));
    auto* pieces = static_cast<Piece*>(args.workspace);
    auto* workers = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + pieces_bytes_);
    for (int64_t e = 0; e < experts_; ++e) pieces[e] = {e, 0, rows.total(e), e};
    sort_pieces(pieces, experts_);
    const int64_t size = dtype_size(rows_.dtype);
    const RowPanels of_m{in<char>(args, transpose_w_ ? 1 : 0), size, m_};
    const RowPanels of_n{in<char>(args, transpose_w_ ? 0 : 1), size, n_};
    const int64_t tasks = m_ranges() * n_ranges();
    parallel_dynamic(threads_, experts_ * tasks, [&](int64_t task, int64_t worker) {
      const Piece& piece = pieces[task / tasks];
      const int64_t row = task % tasks / n_ranges() * m_range_;
      const int64_t col = task % n_ranges() * n_range_;
      multiply(rows, piece, of_m, of_n, row, col, in<float>(args, 3), out<float>(args, 0),
               workers + worker * (a_floats_ + b_floats_));
    });
  }

 private:
  int64_t m_ranges() const { return std::max<int64_t>(1, ceil_div(m_, m_range_)); }
  int64_t n_ranges() const { return std::max<int64_t>(1, ceil_div(n_, n_range_)); }

  /// One rectangle of the gradient of one expert.
  void multiply(const ExpertRows& rows, const Piece& piece, const RowPanels& of_m,
                const RowPanels& of_n, int64_t row_begin, int64_t col, const float* acc, float* dw,
                float* a) const {
    float* b = a + a_floats_;
    const int64_t row_end = std::min(m_, row_begin + m_range_);
    const int64_t cols = std::min(n_range_, n_ - col);
    const int64_t block = block_depth(piece.rows);
    RunCursor cursor(rows, piece.expert);
    for (int64_t k = 0; k == 0 || k < piece.rows; k += block) {
      const int64_t depth = std::min(block, piece.rows - k);
      if (depth > 0) cursor.seek(k);
      of_n.to_panels(cursor, isa_.pack_b[float_], isa_.tile_cols, col, cols, k, depth, b);
      for (int64_t row = row_begin; row < row_end; row += row_block_) {
        const int64_t count = std::min(row_block_, row_end - row);
        of_m.to_panels(cursor, isa_.pack_a[float_], isa_.tile_rows, row, count, k, depth, a);
        const int64_t at = (piece.expert * m_ + row) * n_ + col;
        GemmStore store;
        store.sums = dw + at;
        store.sums_stride = n_;
        store.first = k == 0;
        store.last = k + depth >= piece.rows;
        store.c = dw + at;
        store.ldc = n_;
        store.addend = store.first && acc != nullptr ? acc + at : nullptr;
        isa_.block(count, cols, depth, a, b, depth, store);
      }
    }
  }

  Attrs attrs_;
  TensorType rows_, counts_;
  const GemmIsa& isa_;
  bool transpose_w_;
  int float_;
  int64_t experts_, m_, n_;
  int threads_;
  int64_t row_block_ = 0, m_range_ = 0, n_range_ = 0;
  int64_t pieces_bytes_ = 0, a_floats_ = 0, b_floats_ = 0;
};

}  // namespace

KernelPtr make_grouped_matmul(const KernelSpec& spec, int threads) {
  return std::make_unique<GroupedMatmul>(spec, threads);
}
KernelPtr make_grouped_matmul_wgrad(const KernelSpec& spec, int threads) {
  return std::make_unique<GroupedMatmulWgrad>(spec, threads);
}

}  // namespace weft::cpu
