// The register tile that every matmul-like kernel is built from: kTileRows x kTileCols outputs,
// A read with any strides (broadcast), B read from a panel of kTileCols contiguous floats per k.
#include <cstdint>

#include "weft/backend/cpu/simd-inl.h"

#if defined(WEFT_BACKEND_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_BACKEND_CPU_TILE_INL_H_
#undef WEFT_BACKEND_CPU_TILE_INL_H_
#else
#define WEFT_BACKEND_CPU_TILE_INL_H_
#endif

// Rows of the tile: two accumulators each, plus two registers for B and one for A, must fit into
// the 32 (AVX-512) or 16 vector registers.
#undef WEFT_TILE_ROWS
#if HWY_TARGET == HWY_AVX3
#define WEFT_TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#else
#define WEFT_TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

#define WEFT_COUNT(i) +1
constexpr int64_t kTileRows = 0 WEFT_TILE_ROWS(WEFT_COUNT);
#undef WEFT_COUNT
constexpr int64_t kTileCols = 2 * kLanes;

/// out[i][j] = prev[i][j] + sum over k of a[i * row_stride + k * k_stride] * b[k * kTileCols + j].
/// `prev` may be nullptr (zeros) or equal `out`. kRowStride / kKStride != 0 fix a stride at compile
/// time. Sums run over ascending k, then add `prev`.
template <int64_t kRowStride, int64_t kKStride>
HWY_NOINLINE void multiply_tile(int64_t depth, const float* HWY_RESTRICT a, int64_t row_stride,
                                int64_t k_stride, const float* HWY_RESTRICT b, const float* prev,
                                int64_t prev_stride, float* out, int64_t out_stride) {
  const DF d;
  const int64_t rs = kRowStride != 0 ? kRowStride : row_stride;
  const int64_t ks = kKStride != 0 ? kKStride : k_stride;
#define WEFT_ZERO(i) VF c##i##0 = hn::Zero(d), c##i##1 = hn::Zero(d);
  WEFT_TILE_ROWS(WEFT_ZERO)
#undef WEFT_ZERO
#define WEFT_MULTIPLY(i)                   \
  {                                        \
    const VF ai = hn::Set(d, a[(i)*rs]);   \
    c##i##0 = hn::MulAdd(ai, b0, c##i##0); \
    c##i##1 = hn::MulAdd(ai, b1, c##i##1); \
  }
  for (int64_t k = 0; k < depth; ++k) {
    const VF b0 = hn::LoadU(d, b);
    const VF b1 = hn::LoadU(d, b + kLanes);
    WEFT_TILE_ROWS(WEFT_MULTIPLY)
    a += ks;
    b += kTileCols;
  }
#undef WEFT_MULTIPLY
  if (prev != nullptr) {
#define WEFT_STORE(i)                                                                          \
  hn::StoreU(hn::Add(c##i##0, hn::LoadU(d, prev + (i)*prev_stride)), d, out + (i)*out_stride); \
  hn::StoreU(hn::Add(c##i##1, hn::LoadU(d, prev + (i)*prev_stride + kLanes)), d,               \
             out + (i)*out_stride + kLanes);
    WEFT_TILE_ROWS(WEFT_STORE)
#undef WEFT_STORE
  } else {
#define WEFT_STORE(i)                           \
  hn::StoreU(c##i##0, d, out + (i)*out_stride); \
  hn::StoreU(c##i##1, d, out + (i)*out_stride + kLanes);
    WEFT_TILE_ROWS(WEFT_STORE)
#undef WEFT_STORE
  }
}

/// Copies lanes [0, lanes) of a matrix into panels of kWidth lanes: to[panel][k][lane], k in
/// [0, depth). Element (lane, k) is from[lane * lane_stride + k * k_stride]; one of the strides is
/// 1. The last panel is filled up with zeros.
template <int64_t kWidth, class T>
void pack_panels(const T* from, int64_t lane_stride, int64_t k_stride, int64_t lanes, int64_t depth,
                 float* to) {
  for (int64_t lane = 0; lane < lanes; lane += kWidth, to += kWidth * depth) {
    const T* source = from + lane * lane_stride;
    const int64_t width = lanes - lane < kWidth ? lanes - lane : kWidth;
    if (width == kWidth && lane_stride == 1) {
      for (int64_t k = 0; k < depth; ++k) {
        const T* row = source + k * k_stride;
        float* put = to + k * kWidth;
        int64_t i = 0;
        for (; i + kLanes <= kWidth; i += kLanes) store(load(row + i), put + i);
        for (; i < kWidth; ++i) put[i] = as_float(row[i]);
      }
      continue;
    }
    int64_t done = 0;  // k values already transposed
#if HWY_TARGET != HWY_SCALAR
    if (width == kWidth && k_stride == 1) {
      // 4 x 4 transposes in 128-bit vectors; the rest of the lanes (kWidth % 4) below.
      const hn::FixedTag<float, 4> d4;
      const hn::FixedTag<uint64_t, 2> d64;
      const auto get = [&](int64_t i, int64_t k)
                           HWY_ATTR { return load_vector(d4, source + i * lane_stride + k); };
      constexpr int64_t kWhole = kWidth / 4 * 4;
      for (; done + 4 <= depth; done += 4) {
        float* put = to + done * kWidth;
        for (int64_t i = 0; i < kWhole; i += 4, put += 4) {
          const auto r0 = get(i, done), r1 = get(i + 1, done);
          const auto r2 = get(i + 2, done), r3 = get(i + 3, done);
          const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d4, r0, r1));
          const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d4, r2, r3));
          const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d4, r0, r1));
          const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d4, r2, r3));
          hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d64, t0, t1)), d4, put);
          hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d64, t0, t1)), d4, put + kWidth);
          hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d64, t2, t3)), d4, put + 2 * kWidth);
          hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d64, t2, t3)), d4, put + 3 * kWidth);
        }
        if constexpr (kWhole + 2 == kWidth) {
          const auto r0 = get(kWhole, done), r1 = get(kWhole + 1, done);
          const hn::FixedTag<uint64_t, 1> d1;
          const auto low = hn::BitCast(d64, hn::InterleaveLower(d4, r0, r1));
          const auto high = hn::BitCast(d64, hn::InterleaveUpper(d4, r0, r1));
          const auto put_pair = [&](auto pair, int64_t k) HWY_ATTR {
            float* at = to + (done + k) * kWidth + kWhole;
            hn::StoreU(hn::LowerHalf(d1, pair), d1, reinterpret_cast<uint64_t*>(at));
          };
          put_pair(low, 0);
          put_pair(hn::InterleaveUpper(d64, low, low), 1);
          put_pair(high, 2);
          put_pair(hn::InterleaveUpper(d64, high, high), 3);
        }
      }
    }
#endif
    for (int64_t k = done; k < depth; ++k) {
      float* put = to + k * kWidth;
      for (int64_t i = 0; i < width; ++i) {
        put[i] = as_float(source[i * lane_stride + k * k_stride]);
      }
      for (int64_t i = width; i < kWidth; ++i) put[i] = 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
