// Tile helpers for the sources that use AMX; include it after every other header. Everything below
// the pragma is compiled for AMX and AVX-512 and may run only when has_amx().
//
// A panel is 32 rows of A (or 32 columns of B), stored for every 32 values of k as two tiles of 1
// KB: tile[16][32] of A holds rows, tile[16][16][2] of B holds pairs of k for 16 columns. Rows,
// columns and k beyond the end are zeros.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "weft/base/dtype.h"

#define WEFT_AMX_TARGET \
  "amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi,bmi2,prfchw"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target(WEFT_AMX_TARGET))), apply_to = function)
#define WEFT_AMX_END _Pragma("clang attribute pop")
#else
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns inside its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target( \
    "amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2,prfchw")
#define WEFT_AMX_END _Pragma("GCC pop_options") _Pragma("GCC diagnostic pop")
#endif

namespace weft::cpu::amx {

constexpr int64_t kPanel = 32;      // rows or columns of a panel
constexpr int64_t kDepth = 32;      // k values of a tile
constexpr int64_t kTile = 16 * 32;  // bf16 values of a tile

inline int64_t up32(int64_t value) { return (value + 31) / 32 * 32; }

/// All eight tile registers are 16 rows of 64 bytes.
inline void open_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
}
inline void close_tiles() { _tile_release(); }

/// 16 x 16 transpose of 32-bit values.
inline void transpose(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int j = 0; j < 4; ++j) {  // t[4 g + j] holds column 4 q + j of rows 4 g .. 4 g + 3 in lane q
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

inline __mmask32 first_of_32(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1;
}

/// Reads rows [0, rows) of up to 32 values of k from memory in which k is contiguous, and stores
/// them as a tile of A or, transposed, of B.
template <bool kForB>
inline void pack_rows(const BF16* from, int64_t ld, int64_t rows, int64_t depth, BF16* to) {
  __m512i r[16];
  const __mmask32 mask = first_of_32(depth);
  for (int i = 0; i < 16; ++i) {
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * ld) : _mm512_setzero_si512();
  }
  if constexpr (kForB) transpose(r);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, r[i]);
}

/// Reads up to 32 lanes (rows of A, columns of B) of up to 32 values of k from memory in which the
/// lanes are contiguous, and stores them as two tiles of B or, transposed, of A.
template <bool kForB>
inline void pack_lanes(const BF16* from, int64_t ld, int64_t lanes, int64_t depth, BF16* to) {
  const __mmask32 mask = first_of_32(lanes);
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  __m512i first[16], second[16];
  for (int i = 0; i < 16; ++i) {
    const __m512i zero = _mm512_setzero_si512();
    const BF16* row = from + 2 * i * ld;
    const __m512i even = 2 * i < depth ? _mm512_maskz_loadu_epi16(mask, row) : zero;
    const __m512i odd = 2 * i + 1 < depth ? _mm512_maskz_loadu_epi16(mask, row + ld) : zero;
    first[i] = _mm512_permutex2var_epi16(even, low, odd);
    second[i] = _mm512_permutex2var_epi16(even, high, odd);
  }
  if constexpr (!kForB) {
    transpose(first);
    transpose(second);
  }
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, first[i]);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + kTile + i * 32, second[i]);
}

/// One panel: up to 32 lanes, `depth` values of k. `k_contiguous` says which way `from` is stored;
/// `ld` is the distance of its rows.
template <bool kForB>
inline void pack_panel(const BF16* from, int64_t ld, bool k_contiguous, int64_t lanes,
                       int64_t depth, BF16* to) {
  for (int64_t k = 0; k < depth; k += kDepth, to += 2 * kTile) {
    const int64_t rest = depth - k;
    if (k_contiguous) {
      pack_rows<kForB>(from + k, ld, lanes, rest, to);
      pack_rows<kForB>(from + 16 * ld + k, ld, lanes - 16, rest, to + kTile);
    } else {
      pack_lanes<kForB>(from + k * ld, ld, lanes, rest, to);
    }
  }
}

/// Where multiply_panels finds 32 rows of A: packed, or in a matrix whose rows are `stride` values
/// apart and whose k is contiguous.
struct Rows {
  const BF16* data = nullptr;
  int64_t stride = 32;       // values between rows of a tile
  int64_t half = kTile;      // values between its two tiles
  int64_t step = 2 * kTile;  // values between consecutive tiles of k

  static Rows packed(const BF16* panel) { return {panel, 32, kTile, 2 * kTile}; }
  static Rows plain(const BF16* rows, int64_t ld) { return {rows, ld, 16 * ld, kDepth}; }
};

/// A walk over the cache lines of a matrix that will be read or written soon.
struct Fetch {
  const char* row = nullptr;
  int64_t stride = 0;  // bytes between rows
  int64_t width = 0;   // bytes of a row
  int64_t rows = 0;    // left
  int64_t offset = 0;
  int64_t rate = 0;  // lines per tile of k

  /// The whole matrix within `tiles` tiles of k.
  static Fetch over(const void* data, int64_t stride, int64_t width, int64_t rows, int64_t tiles) {
    const int64_t lines = rows * ((width + 63) / 64);
    return {static_cast<const char*>(data), stride, width, rows, 0, (lines + tiles - 1) / tiles};
  }
  template <bool kWrite>
  void advance() {
    for (int64_t i = 0; i < rate && rows > 0; ++i) {
      if constexpr (kWrite) {
        __builtin_prefetch(row + offset, 1);
      } else {
        _mm_prefetch(row + offset, _MM_HINT_T1);
      }
      offset += 64;
      if (offset >= width) {
        offset = 0;
        row += stride;
        --rows;
      }
    }
  }
};

/// What multiply_panels fetches from L3 or memory while it computes.
struct Ahead {
  Fetch a, b;  // to read later, into L2
  Fetch c;     // to write after this product
};

/// out[32][32] = sums[32][32] (nullptr: zeros) + A . panel of B over `tiles` tiles of k. Strides of
/// sums and out in floats. `ahead` may be nullptr.
template <class AheadPointer>
inline void multiply_panels(int64_t tiles, const Rows& rows, const BF16* b, const float* sums,
                            int64_t sums_stride, float* out, int64_t out_stride,
                            AheadPointer ahead) {
  if (sums != nullptr) {
    const auto bytes = static_cast<size_t>(sums_stride) * 4;
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + 16, bytes);
    _tile_loadd(2, sums + 16 * sums_stride, bytes);
    _tile_loadd(3, sums + 16 * sums_stride + 16, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const BF16* a = rows.data;
  const auto a_bytes = static_cast<size_t>(rows.stride) * 2;
  const int64_t half = rows.half, step = rows.step;
  for (int64_t k = 0; k < tiles; ++k, a += step, b += 2 * kTile) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTile, 64);
    _tile_loadd(5, a + half, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    if constexpr (!std::is_same_v<AheadPointer, std::nullptr_t>) {
      ahead->a.template advance<false>();
      ahead->b.template advance<false>();
      ahead->c.template advance<true>();
    }
  }
  const auto bytes = static_cast<size_t>(out_stride) * 4;
  _tile_stored(0, out, bytes);
  _tile_stored(1, out + 16, bytes);
  _tile_stored(2, out + 16 * out_stride, bytes);
  _tile_stored(3, out + 16 * out_stride + 16, bytes);
}

/// Rounds to nearest even; NaN stays NaN; denormals become 0.
inline __m512i to_bf16x32(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
inline __m512 to_floats(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

}  // namespace weft::cpu::amx
