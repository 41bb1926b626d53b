// Blocking and threads of the packed matmul (after Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", and BLIS).
//
// For every slab of columns and, when k is huge, of k: the team packs B once; then workers take
// rectangles of C one by one, pack its rows of A and run through k innermost, so that a 16-bit
// result needs f32 partial sums of one rectangle only. C rectangles are disjoint and the order of
// the sums is fixed, so results do not depend on the team size nor on who takes which.
#include "weft/backend/cpu/gemm_packed.h"

#include <algorithm>
#include <array>

#include "weft/backend/cpu/amx.h"
#include "weft/backend/cpu/gemm.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/base/check.h"

namespace weft::cpu {
namespace {

constexpr int64_t kDepth = 256;      // k values per block: panels of A and B stay in L1
constexpr int64_t kRowBlock = 144;   // most rows of A per task: stays in L2
constexpr int64_t kLeastTiles = 4;   // row tiles per task: less and B is read too often
constexpr int64_t kLeastCols = 512;  // columns per task: less and packing A costs too much
/// A worker that loses its core to a copy or a host update holds the others up by one task.
constexpr int64_t kTasksPerWorker = 4;
constexpr int64_t kSlabFloats = 2 << 20;  // packed B: stays in L3
constexpr int64_t kSlabDepth = 4096;      // k values of packed B at a time
constexpr int64_t kAmxRows = 32;          // least rows for which AMX beats oneDNN

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A product without rows or columns.
class EmptyGemm final : public Gemm {
 public:
  int64_t workspace_bytes() const override { return 0; }
  void run(const void*, const void*, void*, const float*, const void*, void*) const override {}
};

class PackedGemm final : public Gemm {
 public:
  PackedGemm(const GemmSpec& spec, int threads)
      : spec_(spec),
        isa_(gemm_isa()),
        a_float_(float_index(spec.a)),
        b_float_(float_index(spec.b)),
        threads_(std::max(threads, 1)) {
    WEFT_CHECK(spec.m > 0 && spec.n > 0 && spec.k >= 0, "gemm", "unsupported matmul {} x {} x {}",
               spec.m, spec.n, spec.k);
    narrow_ = spec.c != DType::f32;
    num_slabs_k_ = std::max<int64_t>(1, ceil_div(spec.k, kSlabDepth));
    slab_depth_ = round_up(ceil_div(std::max<int64_t>(spec.k, 1), num_slabs_k_), 8);
    depth_ = slab_depth_ <= kDepth + kDepth / 2
                 ? slab_depth_
                 : round_up(ceil_div(slab_depth_, ceil_div(slab_depth_, kDepth)), 8);
    // Equal slabs of columns.
    const int64_t widest = std::max(isa_.tile_cols, kSlabFloats / slab_depth_);
    const int64_t num_slabs = ceil_div(spec.n, widest);
    slab_cols_ = round_up(ceil_div(spec.n, num_slabs), isa_.tile_cols);
    block_sums_ = narrow_ && num_slabs_k_ == 1 && slab_depth_ > depth_;
    full_sums_ = narrow_ && num_slabs_k_ > 1;
    choose_grid();
    const int64_t line = 16;  // floats per cache line
    a_floats_ = round_up(task_rows_ * depth_, line);
    sums_floats_ = block_sums_ ? round_up(task_rows_ * task_cols_, line) : 0;
    b_floats_ = round_up(slab_cols_ * slab_depth_, line);
    full_floats_ = full_sums_ ? round_up(spec.m * slab_cols_, line) : 0;
  }

  int64_t workspace_bytes() const override {
    const int64_t workers = std::min(threads_, grid_rows_ * grid_cols_);
    return 4 * (b_floats_ + full_floats_ + workers * (a_floats_ + sums_floats_));
  }

  void run(const void* a, const void* b, void* c, const float* bias, const void* addend,
           void* workspace) const override {
    float* packed_b = static_cast<float*>(workspace);
    float* full = packed_b + b_floats_;
    float* workers = full + full_floats_;
    const auto b_size = static_cast<int64_t>(dtype_size(spec_.b));
    const int64_t b_lane = spec_.trans_b ? spec_.ldb : 1;
    const int64_t b_k = spec_.trans_b ? 1 : spec_.ldb;
    for (int64_t col = 0; col < spec_.n; col += slab_cols_) {
      const int64_t cols = std::min(slab_cols_, spec_.n - col);
      const int64_t panels = ceil_div(cols, isa_.tile_cols);
      for (int64_t k = 0; k == 0 || k < spec_.k; k += slab_depth_) {
        const int64_t depth = std::min(slab_depth_, spec_.k - k);
        const int64_t packers = panels * depth > 4096 ? threads_ : 1;
        parallel_dynamic(packers, panels, [&](int64_t panel, int64_t) {
          const int64_t lane = panel * isa_.tile_cols;
          isa_.pack_b[b_float_](
              static_cast<const char*>(b) + ((col + lane) * b_lane + k * b_k) * b_size, b_lane, b_k,
              std::min(isa_.tile_cols, cols - lane), depth, packed_b + lane * depth);
        });
        const Slab slab{.a = a,
                        .b = packed_b,
                        .c = c,
                        .bias = bias,
                        .addend = addend,
                        .full = full,
                        .col = col,
                        .cols = cols,
                        .k = k,
                        .depth = depth};
        parallel_dynamic(team_, grid_rows_ * grid_cols_, [&](int64_t task, int64_t worker) {
          run_task(slab, task, workers + worker * (a_floats_ + sums_floats_));
        });
      }
    }
  }

 private:
  struct Slab {
    const void* a;
    const float* b;
    void* c;
    const float* bias;
    const void* addend;
    float* full;
    int64_t col, cols, k, depth;
  };

  /// Cuts a slab into tasks of whole tiles: by rows as far as that goes, because every task packs
  /// its rows of A, then by columns.
  void choose_grid() {
    const int64_t row_tiles = ceil_div(spec_.m, isa_.tile_rows);
    const int64_t col_tiles = ceil_div(slab_cols_, isa_.tile_cols);
    const double work =
        static_cast<double>(spec_.m) * static_cast<double>(spec_.n) * static_cast<double>(spec_.k);
    team_ = std::clamp<int64_t>(static_cast<int64_t>(work / 1e5), 1, threads_);
    const int64_t wanted = team_ == 1 ? 1 : team_ * kTasksPerWorker;
    const int64_t cut = std::clamp<int64_t>(ceil_div(row_tiles, kLeastTiles), 1, wanted);
    const int64_t most_tiles = std::max<int64_t>(1, kRowBlock / isa_.tile_rows);
    const int64_t tiles = std::min(most_tiles, ceil_div(row_tiles, cut));
    grid_rows_ = ceil_div(row_tiles, tiles);
    // Idle workers are worse than narrow tasks.
    const int64_t pieces =
        std::max(ceil_div(team_, grid_rows_),
                 std::min(ceil_div(wanted, grid_rows_), slab_cols_ / kLeastCols));
    const int64_t wide = ceil_div(col_tiles, std::clamp<int64_t>(pieces, 1, col_tiles));
    grid_cols_ = ceil_div(col_tiles, wide);
    task_rows_ = tiles * isa_.tile_rows;
    task_cols_ = wide * isa_.tile_cols;
  }

  void run_task(const Slab& slab, int64_t task, float* scratch) const {
    const int64_t row = task / grid_cols_ * task_rows_;
    const int64_t rows = std::min(task_rows_, spec_.m - row);
    const int64_t col = task % grid_cols_ * task_cols_;
    const int64_t cols = std::min(slab.cols - col, task_cols_);
    if (cols <= 0) return;
    float* packed_a = scratch;
    float* block_sums = scratch + a_floats_;
    const auto a_size = static_cast<int64_t>(dtype_size(spec_.a));
    const auto c_size = static_cast<int64_t>(dtype_size(spec_.c));
    const int64_t a_lane = spec_.trans_a ? 1 : spec_.lda;
    const int64_t a_k = spec_.trans_a ? spec_.lda : 1;
    const int64_t at = row * spec_.ldc + slab.col + col;
    char* c = static_cast<char*>(slab.c) + at * c_size;
    const char* addend =
        slab.addend == nullptr ? nullptr : static_cast<const char*>(slab.addend) + at * c_size;
    for (int64_t k = 0; k == 0 || k < slab.depth; k += depth_) {
      const int64_t depth = std::min(depth_, slab.depth - k);
      isa_.pack_a[a_float_](
          static_cast<const char*>(slab.a) + (row * a_lane + (slab.k + k) * a_k) * a_size, a_lane,
          a_k, rows, depth, packed_a);
      GemmStore store;
      store.first = slab.k + k == 0;
      store.last = slab.k + k + depth >= spec_.k;
      store.c = c;
      store.ldc = spec_.ldc;
      store.dtype = float_index(spec_.c);
      if (!narrow_) {  // C itself holds the partial sums
        store.sums = reinterpret_cast<float*>(c);
        store.sums_stride = spec_.ldc;
      } else if (full_sums_) {
        store.sums = slab.full + row * slab_cols_ + col;
        store.sums_stride = slab_cols_;
      } else if (block_sums_) {
        store.sums = block_sums;
        store.sums_stride = task_cols_;
      }
      // f32 adds the addend first, so that C may be the addend; 16 bits need it last.
      if (narrow_ ? store.last : store.first) store.addend = addend;
      if (store.last && slab.bias != nullptr) store.bias = slab.bias + slab.col + col;
      isa_.block(rows, cols, depth, packed_a, slab.b + col * slab.depth + k * isa_.tile_cols,
                 slab.depth, store);
    }
  }

  GemmSpec spec_;
  const GemmIsa& isa_;
  int a_float_, b_float_;
  int64_t threads_;
  bool narrow_ = false;  // C has 16 bits: sums need memory of their own
  bool block_sums_ = false;
  bool full_sums_ = false;
  int64_t num_slabs_k_ = 1, slab_depth_ = 0, slab_cols_ = 0, depth_ = 0;
  int64_t team_ = 1, grid_rows_ = 1, grid_cols_ = 1, task_rows_ = 0, task_cols_ = 0;
  int64_t a_floats_ = 0, b_floats_ = 0, sums_floats_ = 0, full_floats_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_packed_gemm(const GemmSpec& spec, int threads) {
  return std::make_unique<PackedGemm>(spec, threads);
}

std::unique_ptr<Gemm> make_gemm(const GemmSpec& spec, int threads, GemmKind kind) {
  if (spec.m == 0 || spec.n == 0) return std::make_unique<EmptyGemm>();
  const bool half =
      kind == GemmKind::automatic && spec.a == DType::bf16 && spec.b == DType::bf16 && spec.k > 0;
  // Packing pays when the rows of A are many.
  if (kind == GemmKind::amx || (half && spec.m >= kAmxRows && has_amx())) {
    WEFT_CHECK(has_amx(), "gemm", "this CPU has no AMX");
    return make_amx_gemm(spec, threads);
  }
  const bool dot_products = half && has_bf16_dot_products();
  if (kind == GemmKind::onednn || dot_products) {
    auto gemm = make_onednn_gemm(spec, threads);
    WEFT_CHECK(gemm != nullptr || dot_products, "gemm", "oneDNN has no such matmul here");
    if (gemm != nullptr) return gemm;
  }
  return make_packed_gemm(spec, threads);
}

}  // namespace weft::cpu
