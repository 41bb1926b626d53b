// Matrix products on AMX tiles. The workers take blocks of C. A block goes through k in pieces
// short enough for a panel of B to stay in L1 while it meets all rows of A, which stay in L2; the
// partial sums of the block do too. Panels of B are packed beforehand when several blocks need
// them, and otherwise when their turn comes. Every element is summed in the same order whoever
// computes it, so results do not depend on the team size.
#include "weft/backend/cpu/amx.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/base/check.h"

#if defined(__x86_64__)
#include "weft/backend/cpu/amx-inl.h"

namespace weft::cpu {
namespace {

/// One product. Pieces of k are `depth` long, the last one may be shorter.
struct AmxProduct {
  GemmSpec spec;
  int64_t depth = 0;
  bool plain_a = false;  // tiles of A are loaded from the matrix itself
  const BF16* a = nullptr;
  const BF16* b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;
  const void* addend = nullptr;
  bool stream = false;             // C is large: write it past the caches
  const BF16* packed_b = nullptr;  // all of B by pieces of k and panels, or nullptr

  const BF16* a_at(int64_t row, int64_t k) const {
    return spec.trans_a ? a + k * spec.lda + row : a + row * spec.lda + k;
  }
  const BF16* b_at(int64_t k, int64_t col) const {
    return spec.trans_b ? b + col * spec.ldb + k : b + k * spec.ldb + col;
  }
  const BF16* packed_b_at(int64_t k, int64_t col) const {
    const int64_t piece = std::min(depth, amx::up32(spec.k - k));
    return packed_b + k * amx::up32(spec.n) + col * piece;
  }
};

/// A block of C and the scratch memory of the worker that computes it.
struct AmxBlock {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  int64_t next_row = 0;   // of the block that the worker probably computes next
  BF16* a = nullptr;      // a piece of the rows, packed
  BF16* b = nullptr;      // one packed panel
  float* sums = nullptr;  // partial sums, whole panels
};

/// 32 elements of C and of what is added to it; `mask` has the columns that exist.
void add_row(const float* addend, __mmask32 mask, __m512& v0, __m512& v1) {
  const auto low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
  v0 = _mm512_add_ps(v0, _mm512_maskz_loadu_ps(low, addend));
  v1 = _mm512_add_ps(v1, _mm512_maskz_loadu_ps(high, addend + 16));
}

void add_row(const BF16* addend, __mmask32 mask, __m512& v0, __m512& v1) {
  const __m512i more = _mm512_maskz_loadu_epi16(mask, addend);
  v0 = _mm512_add_ps(v0, amx::to_floats(_mm512_castsi512_si256(more)));
  v1 = _mm512_add_ps(v1, amx::to_floats(_mm512_extracti64x4_epi64(more, 1)));
}

void put_row(float* c, __mmask32 mask, __m512 v0, __m512 v1, bool stream) {
  if (stream) {
    _mm512_stream_ps(c, v0);
    _mm512_stream_ps(c + 16, v1);
  } else {
    _mm512_mask_storeu_ps(c, static_cast<__mmask16>(mask), v0);
    _mm512_mask_storeu_ps(c + 16, static_cast<__mmask16>(mask >> 16), v1);
  }
}

void put_row(BF16* c, __mmask32 mask, __m512 v0, __m512 v1, bool stream) {
  const __m512i value = amx::to_bf16x32(v0, v1);
  if (stream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(c), value);
  } else {
    _mm512_mask_storeu_epi16(c, mask, value);
  }
}

/// Writes 32 x 32 sums to `rows` x `cols` of C, with bias and addend. `stream`: past the caches.
template <class T>
void finish(const float* sums, const float* bias, const T* addend, int64_t rows, int64_t cols, T* c,
            int64_t ldc, bool stream) {
  const __mmask32 mask = amx::first_of_32(cols);
  const auto low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
  const __m512 zero = _mm512_setzero_ps();
  const __m512 bias0 = bias != nullptr ? _mm512_maskz_loadu_ps(low, bias) : zero;
  const __m512 bias1 = bias != nullptr ? _mm512_maskz_loadu_ps(high, bias + 16) : zero;
  for (int64_t i = 0; i < rows; ++i, sums += amx::kPanel, c += ldc) {
    __m512 v0 = _mm512_add_ps(_mm512_load_ps(sums), bias0);
    __m512 v1 = _mm512_add_ps(_mm512_load_ps(sums + 16), bias1);
    if (addend != nullptr) add_row(addend + i * ldc, mask, v0, v1);
    put_row(c, mask, v0, v1, stream && cols >= amx::kPanel);
  }
}

/// One pair of panels at (row, col) of C. Partial sums stay in f32 until the last piece of k.
template <class T>
void multiply_at(const AmxProduct& p, const AmxBlock& block, int64_t row, int64_t col, int64_t k,
                 int64_t tiles, const amx::Rows& a, const BF16* b, amx::Ahead& ahead) {
  // Panel after panel, 32 x 32 sums each.
  float* sums =
      block.sums + (col - block.col) * amx::up32(block.rows) + (row - block.row) * amx::kPanel;
  const float* before = k == 0 ? nullptr : sums;
  ahead.c = {};
  if (k + tiles * amx::kDepth < p.spec.k) {
    amx::multiply_panels(tiles, a, b, before, amx::kPanel, sums, amx::kPanel, &ahead);
    return;
  }
  const int64_t ldc = p.spec.ldc, at = row * ldc + col;
  constexpr int64_t kSize = sizeof(T);
  T* c = static_cast<T*>(p.c) + at;
  const T* addend = p.addend == nullptr ? nullptr : static_cast<const T*>(p.addend) + at;
  const int64_t rows = std::min(amx::kPanel, block.row + block.rows - row);
  const int64_t cols = std::min(amx::kPanel, block.col + block.cols - col);
  if (addend != nullptr) {
    ahead.c = amx::Fetch::over(addend, kSize * ldc, kSize * cols, rows, tiles);
  } else if (!p.stream) {
    ahead.c = amx::Fetch::over(c, kSize * ldc, kSize * cols, rows, tiles);
  }
  alignas(64) float tile[amx::kPanel * amx::kPanel];
  amx::multiply_panels(tiles, a, b, before, amx::kPanel, tile, amx::kPanel, &ahead);
  finish(tile, p.bias == nullptr ? nullptr : p.bias + col, addend, rows, cols, c, ldc,
         p.stream && addend != c);
}

/// Fetches rows [row, row + rows) of A, k values [k, k + depth), within `tiles` tiles of k.
amx::Fetch fetch_a(const AmxProduct& p, int64_t row, int64_t rows, int64_t k, int64_t tiles) {
  const int64_t depth = std::min(p.depth, p.spec.k - k), ld = 2 * p.spec.lda;
  rows = std::min(rows, p.spec.m - row);
  if (rows <= 0) return {};
  return p.spec.trans_a ? amx::Fetch::over(p.a_at(row, k), ld, 2 * rows, depth, tiles)
                        : amx::Fetch::over(p.a_at(row, k), ld, 2 * depth, rows, tiles);
}
/// The same for one panel of columns of B.
amx::Fetch fetch_b(const AmxProduct& p, int64_t col, int64_t k, int64_t tiles) {
  const int64_t depth = std::min(p.depth, p.spec.k - k), ld = 2 * p.spec.ldb;
  const int64_t cols = std::min(amx::kPanel, p.spec.n - col);
  if (cols <= 0) return {};
  if (p.packed_b != nullptr) {
    const int64_t bytes = 2 * amx::kPanel * amx::up32(depth);
    return amx::Fetch::over(p.packed_b_at(k, col), 0, bytes, 1, tiles);
  }
  return p.spec.trans_b ? amx::Fetch::over(p.b_at(k, col), ld, 2 * depth, cols, tiles)
                        : amx::Fetch::over(p.b_at(k, col), ld, 2 * cols, depth, tiles);
}

void run_block(const AmxProduct& p, const AmxBlock& block) {
  amx::open_tiles();
  const int64_t end_row = block.row + block.rows, end_col = block.col + block.cols;
  const int64_t row_panels = (block.rows + amx::kPanel - 1) / amx::kPanel;
  const int64_t col_panels = (block.cols + amx::kPanel - 1) / amx::kPanel;
  for (int64_t k = 0; k < p.spec.k; k += p.depth) {
    const int64_t depth = std::min(p.depth, p.spec.k - k);
    const int64_t tiles = (depth + amx::kDepth - 1) / amx::kDepth, panel = tiles * 2 * amx::kTile;
    const bool plain = p.plain_a && block.rows % amx::kPanel == 0 && depth % amx::kDepth == 0;
    for (int64_t row = block.row; !plain && row < end_row; row += amx::kPanel) {
      amx::pack_panel<false>(p.a_at(row, k), p.spec.lda, !p.spec.trans_a,
                             std::min(amx::kPanel, end_row - row), depth,
                             block.a + (row - block.row) / amx::kPanel * panel);
    }
    const bool last = k + p.depth >= p.spec.k;
    amx::Ahead ahead;
    ahead.a = fetch_a(p, last ? block.next_row : block.row, block.rows, last ? 0 : k + p.depth,
                      tiles * row_panels * col_panels);
    for (int64_t col = block.col; col < end_col; col += amx::kPanel) {
      const BF16* b = block.b;
      if (p.packed_b != nullptr) {
        b = p.packed_b_at(k, col);
      } else {
        amx::pack_panel<true>(p.b_at(k, col), p.spec.ldb, p.spec.trans_b,
                              std::min(amx::kPanel, end_col - col), depth, block.b);
      }
      const bool wrap = col + amx::kPanel >= end_col;
      ahead.b = wrap && last ? amx::Fetch()
                             : fetch_b(p, wrap ? block.col : col + amx::kPanel,
                                       wrap ? k + p.depth : k, tiles * row_panels);
      for (int64_t row = block.row; row < end_row; row += amx::kPanel) {
        const amx::Rows a =
            plain ? amx::Rows::plain(p.a_at(row, k), p.spec.lda)
                  : amx::Rows::packed(block.a + (row - block.row) / amx::kPanel * panel);
        if (p.spec.c == DType::bf16) {
          multiply_at<BF16>(p, block, row, col, k, tiles, a, b, ahead);
        } else {
          multiply_at<float>(p, block, row, col, k, tiles, a, b, ahead);
        }
      }
    }
  }
  amx::close_tiles();
  if (p.stream) _mm_sfence();
}

void pack_b(const AmxProduct& p, int64_t col, BF16* packed) {
  for (int64_t k = 0; k < p.spec.k; k += p.depth) {
    const int64_t depth = std::min(p.depth, p.spec.k - k);
    amx::pack_panel<true>(p.b_at(k, col), p.spec.ldb, p.spec.trans_b,
                          std::min(amx::kPanel, p.spec.n - col), depth,
                          packed + (p.packed_b_at(k, col) - p.packed_b));
  }
}

}  // namespace
}  // namespace weft::cpu
WEFT_AMX_END

namespace weft::cpu {
namespace {

constexpr int64_t kPieceDepth = 256;  // most k values of a piece: its panel of B stays in L1
constexpr int64_t kBlockSide = 384;   // rows and columns of a block: its sums stay in L2
constexpr int64_t kAloneRows = 512;   // the same without packed B, where fewer blocks pack less
constexpr int64_t kWideCols = 1024;   // columns of a block with a single piece: no sums to keep
constexpr int64_t kSharedRows = 768;  // more rows than this: B is packed beforehand
constexpr int64_t kPackedValues = 16 << 20;  // most values of B that are packed beforehand
constexpr int64_t kStreamBytes = 4 << 20;    // of C: more would not stay in L2 anyway

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class AmxGemm final : public Gemm {
 public:
  AmxGemm(const GemmSpec& spec, int threads) : threads_(std::max(threads, 1)) {
    WEFT_CHECK(
        spec.a == DType::bf16 && spec.b == DType::bf16 && spec.m > 0 && spec.n > 0 && spec.k > 0,
        "gemm", "unsupported matmul {} x {} x {}", spec.m, spec.n, spec.k);
    product_.spec = spec;
    const int64_t pieces = ceil_div(spec.k, kPieceDepth);
    product_.depth = amx::up32(ceil_div(spec.k, pieces));
    product_.plain_a = !spec.trans_a && spec.lda % amx::kPanel == 0;
    shared_b_ = spec.m > kSharedRows && spec.n * spec.k <= kPackedValues;
    block_rows_ = equal(spec.m, shared_b_ ? kBlockSide : kAloneRows);
    block_cols_ = equal(spec.n, pieces == 1 ? kWideCols : kBlockSide);
    // Blocks enough for every worker.
    const auto blocks = [&] {
      return ceil_div(spec.m, block_rows_) * ceil_div(spec.n, block_cols_);
    };
    while (blocks() % threads_ != 0 && blocks() < 4 * threads_ &&
           std::max(block_rows_, block_cols_) > 64) {
      if (block_cols_ > 64 && block_cols_ * 2 >= block_rows_) {
        block_cols_ = amx::up32(block_cols_ / 2);
      } else {
        block_rows_ = amx::up32(block_rows_ / 2);
      }
    }
    const int64_t c_size = dtype_size(spec.c);
    stream_ = spec.m * spec.n * c_size >= kStreamBytes && spec.ldc * c_size % 64 == 0;
    if (pieces > 1) sums_ = block_rows_ * block_cols_;
  }

  int64_t workspace_bytes() const override {
    const int64_t shared = shared_b_ ? shared_values() : 0;
    return 2 * shared + threads_ * worker_bytes();
  }

  void run(const void* a, const void* b, void* c, const float* bias, const void* addend,
           void* workspace) const override {
    AmxProduct product = product_;
    product.a = static_cast<const BF16*>(a);
    product.b = static_cast<const BF16*>(b);
    product.c = c;
    product.stream = stream_ && reinterpret_cast<uintptr_t>(c) % 64 == 0;
    product.bias = bias;
    product.addend = addend;
    const GemmSpec& spec = product.spec;
    char* workers = static_cast<char*>(workspace);
    if (shared_b_) {
      auto* packed = static_cast<BF16*>(workspace);
      product.packed_b = packed;
      workers += 2 * shared_values();
      parallel_dynamic(threads_, ceil_div(spec.n, amx::kPanel), [&](int64_t panel, int64_t) {
        pack_b(product, panel * amx::kPanel, packed);
      });
    }
    const int64_t across = ceil_div(spec.n, block_cols_);
    parallel_dynamic(threads_, ceil_div(spec.m, block_rows_) * across,
                     [&](int64_t task, int64_t worker) {
                       AmxBlock block;
                       block.row = task / across * block_rows_;
                       block.rows = std::min(block_rows_, spec.m - block.row);
                       block.col = task % across * block_cols_;
                       block.cols = std::min(block_cols_, spec.n - block.col);
                       block.next_row = (task + threads_) / across * block_rows_;
                       block.a = reinterpret_cast<BF16*>(workers + worker * worker_bytes());
                       block.b = block.a + block_rows_ * product.depth;
                       block.sums = reinterpret_cast<float*>(block.b + amx::kPanel * product.depth);
                       run_block(product, block);
                     });
  }

 private:
  /// Blocks of equal size, whole panels, at most `most`.
  static int64_t equal(int64_t extent, int64_t most) {
    return amx::up32(ceil_div(extent, ceil_div(extent, most)));
  }
  int64_t shared_values() const { return amx::up32(product_.spec.n) * amx::up32(product_.spec.k); }
  int64_t worker_bytes() const {
    return 2 * (block_rows_ + amx::kPanel) * product_.depth + 4 * sums_;
  }

  AmxProduct product_;
  int threads_;
  bool shared_b_ = false, stream_ = false;
  int64_t block_rows_ = 0, block_cols_ = 0, sums_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_amx_gemm(const GemmSpec& spec, int threads) {
  return std::make_unique<AmxGemm>(spec, threads);
}

}  // namespace weft::cpu

#else

namespace weft::cpu {

std::unique_ptr<Gemm> make_amx_gemm(const GemmSpec&, int) {
  WEFT_CHECK(false, "gemm", "this build has no AMX");
  return nullptr;
}

}  // namespace weft::cpu
#endif
