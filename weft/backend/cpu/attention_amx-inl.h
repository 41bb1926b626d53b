// What the passes of attention on AMX tiles share; include it after every other header.
#pragma once

#include <limits>

#include "weft/backend/cpu/amx-inl.h"
#include "weft/backend/cpu/attention_isa.h"

namespace weft::cpu::amx {

int64_t attention_grad_floats(const AttentionShape& shape);
void attention_grad(const AttentionShape& shape, const AttentionArgs& args, int64_t group,
                    float* scratch);

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.44269504f;

/// Hands out pieces of the scratch memory, whole cache lines each.
struct Scratch {
  float* next;
  float* take_floats(int64_t count) {
    float* piece = next;
    next += round_up(count, 16);
    return piece;
  }
  BF16* take(int64_t count) { return reinterpret_cast<BF16*>(take_floats(round_up(count, 2) / 2)); }
};

/// 2^x to about 1 ulp for -126 <= x < 128; 0 below (no denormals, which are slow); NaN stays NaN.
inline __m512 exp2_fast(__m512 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.535336188e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.339887440e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.618437358e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550332471e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402264791e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931472029e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(normal, p, n);
}

/// Bits of [begin, end) among 16 lanes.
inline __mmask16 lanes(int64_t begin, int64_t end) {
  const auto low = [](int64_t n) { return n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1; };
  return static_cast<__mmask16>(low(end) & ~low(begin));
}

/// Panels of up to 32 rows whose k is contiguous, enough for `room` rows; what is beyond `count`
/// rows or `depth` values is zeros.
template <bool kForB>
inline void pack_rows(const BF16* from, int64_t ld, int64_t count, int64_t room, int64_t depth,
                      BF16* to) {
  for (int64_t row = 0; row < room; row += kPanel, to += up32(depth) * kPanel) {
    pack_panel<kForB>(from + row * ld, ld, true, std::min(kPanel, count - row), depth, to);
  }
}

/// Panels of 32 features with k = positions, `room` of them; what is beyond is zeros.
template <bool kForB>
inline void pack_features(const BF16* from, int64_t ld, int64_t count, int64_t room,
                          int64_t features, BF16* to) {
  for (int64_t lane = 0; lane < features; lane += kPanel) {
    for (int64_t k = 0; k < room; k += kDepth, to += 2 * kTile) {
      pack_lanes<kForB>(from + k * ld + lane, ld, features - lane, count - k, to);
    }
  }
}

/// Writes rows of f32 sums, times a factor, as bf16.
inline void store_rows(const float* sums, int64_t stride, int64_t rows, int64_t width, float scale,
                       BF16* to, int64_t ld) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < width; j += kPanel) {
      const float* from = sums + i * stride + j;
      const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(from), factor);
      const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(from + 16), factor);
      _mm512_mask_storeu_epi16(to + i * ld + j, first_of_32(width - j), to_bf16x32(low, high));
    }
  }
}

/// What a query may see: keys of [query - window, query] in its own segment.
struct Visible {
  int64_t window;  // 0 = none
  const int32_t* segments;
  int64_t first_key(int64_t query) const {
    return window > 0 ? std::max<int64_t>(0, query - window + 1) : 0;
  }
};

}  // namespace weft::cpu::amx
