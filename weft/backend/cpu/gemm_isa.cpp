// Packing and the block kernel of the packed matmul, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/gemm_isa.cpp"
#include "hwy/foreach_target.h"
#include "weft/backend/cpu/gemm_packed.h"
#include "weft/backend/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T, int64_t kWidth>
void pack(const void* from, int64_t lane_stride, int64_t k_stride, int64_t lanes, int64_t depth,
          float* to) {
  pack_panels<kWidth>(static_cast<const T*>(from), lane_stride, k_stride, lanes, depth, to);
}

/// C = sums + bias + addend for one row of `cols` values.
template <class T>
void finish_row(const float* sums, const float* bias, const T* addend, int64_t cols, T* c) {
  int64_t j = 0;
  for (; j + kLanes <= cols; j += kLanes) {
    VF value = load(sums + j);
    if (bias != nullptr) value = hn::Add(value, load(bias + j));
    if (addend != nullptr) value = hn::Add(value, load(addend + j));
    store(value, c + j);
  }
  if (j < cols) {
    VF value = load_tail(sums + j, cols - j);
    if (bias != nullptr) value = hn::Add(value, load_tail(bias + j, cols - j));
    if (addend != nullptr) value = hn::Add(value, load_tail(addend + j, cols - j));
    store_tail(value, c + j, cols - j);
  }
}

template <class T>
void finish_tile(const float* sums, const GemmStore& s, int64_t row, int64_t col, int64_t rows,
                 int64_t cols) {
  const float* bias = s.bias == nullptr ? nullptr : s.bias + col;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = (row + i) * s.ldc + col;
    const T* addend = s.addend == nullptr ? nullptr : static_cast<const T*>(s.addend) + at;
    finish_row(sums + i * kTileCols, bias, addend, cols, static_cast<T*>(s.c) + at);
  }
}

constexpr decltype(&finish_tile<float>) finish_of[] = WEFT_PER_FLOAT(finish_tile);

void block(int64_t rows, int64_t cols, int64_t depth, const float* a, const float* b,
           int64_t panel_depth, const GemmStore& s) {
  alignas(64) float tile[kTileRows * kTileCols];
  const bool narrow = s.dtype != 0;
  const auto* f32_addend = narrow ? nullptr : static_cast<const float*>(s.addend);
  // Whole tiles of f32 results need no detour through `tile`.
  const bool direct = !s.last || (!narrow && s.bias == nullptr && (s.first || !f32_addend));
  float* to = s.last ? static_cast<float*>(s.c) : s.sums;
  const int64_t to_stride = s.last ? s.ldc : s.sums_stride;
  const float* prev = s.first ? f32_addend : s.sums;
  const int64_t prev_stride = s.first ? s.ldc : s.sums_stride;
  GemmStore finish = s;
  if (s.first && !narrow) finish.addend = nullptr;  // already in prev
  for (int64_t col = 0; col < cols; col += kTileCols) {
    const int64_t width = cols - col < kTileCols ? cols - col : kTileCols;
    const float* b_panel = b + col * panel_depth;
    // The next panel of B comes from L3 or memory: fetch it piece by piece meanwhile.
    const float* next = b_panel + kTileCols * panel_depth;
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    const int64_t piece = col + kTileCols < cols ? (depth * kTileCols / tiles + 15) / 16 * 16 : 0;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      for (int64_t i = 0; i < piece; i += 16) __builtin_prefetch(next + i, 0, 2);
      next += piece;
      const int64_t height = rows - row < kTileRows ? rows - row : kTileRows;
      const float* a_panel = a + row * depth;
      const float* before = prev == nullptr ? nullptr : prev + row * prev_stride + col;
      // The k loop is longer than any out-of-order window, so fetch the results' lines now.
      const float* touch = before != nullptr ? before : to + row * to_stride + col;
      const int64_t touch_stride = before != nullptr ? prev_stride : to_stride;
      for (int64_t i = 0; (direct || before != nullptr) && i < height; ++i) {
        __builtin_prefetch(touch + i * touch_stride, 1);
        __builtin_prefetch(touch + i * touch_stride + width - 1, 1);
      }
      if (direct && width == kTileCols && height == kTileRows) {
        multiply_tile<1, kTileRows>(depth, a_panel, 0, 0, b_panel, before, prev_stride,
                                    to + row * to_stride + col, to_stride);
        continue;
      }
      multiply_tile<1, kTileRows>(depth, a_panel, 0, 0, b_panel, nullptr, 0, tile, kTileCols);
      for (int64_t i = 0; before != nullptr && i < height; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          tile[i * kTileCols + j] += before[i * prev_stride + j];
        }
      }
      if (!s.last) {
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            to[(row + i) * to_stride + col + j] = tile[i * kTileCols + j];
          }
        }
      } else {
        finish_of[s.dtype](tile, finish, row, col, height, width);
      }
    }
  }
}

GemmIsa isa() {
  return {HWY_TARGET == HWY_AVX3,
          kTileRows,
          kTileCols,
          WEFT_PER_FLOAT_WITH(pack, kTileRows),
          WEFT_PER_FLOAT_WITH(pack, kTileCols),
          &block};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const GemmIsa& gemm_isa() {
  static const GemmIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
