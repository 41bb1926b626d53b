// Standard normal numbers by Box-Muller, many at a time. Logarithm and cosine are the polynomials
// of fdlibm (Sun Microsystems, "freely distributable libm") in plain double arithmetic, not calls
// of libm: the compiler can vectorise them, and every machine, C library and vector width gives
// the same bits (contraction to fma is off for all of weft).
#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/base/rng.h"

namespace weft {
namespace {

#define WEFT_INLINE inline __attribute__((always_inline))

constexpr int kBlock = 64;

/// Exact conversion through int32, which every vector unit has.
WEFT_INLINE double to_double(uint32_t value) {
  return static_cast<double>(static_cast<int32_t>(value ^ 0x80000000u)) + 2147483648.0;
}

/// log(x) for normal x > 0.
WEFT_INLINE double log_of(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  // Mantissa into [sqrt(1/2), sqrt(2)): adding the distance of sqrt(1/2) from 1 carries into the
  // exponent exactly when the mantissa is too large.
  const uint64_t bits =
      std::bit_cast<uint64_t>(x) + (0x3ff0000000000000ull - 0x3fe6a09e00000000ull);
  const auto exponent = static_cast<int32_t>(bits >> 52) - 1023;
  const double mantissa =
      std::bit_cast<double>((bits & 0x000fffffffffffffull) + 0x3fe6a09e00000000ull);
  const double f = mantissa - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double t1 = w * (3.999999999940941908e-01 +
                         w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double t2 = z * (6.666666666666735130e-01 +
                         w * (2.857142874366239149e-01 +
                              w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f;
  const double k = exponent;
  return k * kLn2High - ((half_square - (s * (half_square + (t1 + t2)) + k * kLn2Low)) - f);
}

/// cos(2 pi a) for a in [0, 1).
WEFT_INLINE double cos_of_turns(double a) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const auto quarter = static_cast<int32_t>(a * 4.0 + 0.5);  // nearest quarter turn, 0..4
  const double y = (a - 0.25 * quarter) * kTwoPi;            // in [-pi/4, pi/4]
  const double z = y * y;
  const double sine =
      y + y * z *
              (-1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 +
                                                                z * 1.58969099521155010221e-10)))));
  const double cosine =
      1.0 -
      (0.5 * z -
       z * z *
           (4.16666666666666019037e-02 +
            z * (-1.38888888888741095749e-03 +
                 z * (2.48015872894767294178e-05 +
                      z * (-2.75573143513906633035e-07 +
                           z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))))));
  // Selections by bit masks: compilers do not turn floating branches into vector code by
  // themselves.
  const uint64_t odd = uint64_t{0} - static_cast<uint64_t>(quarter & 1);
  const uint64_t bits =
      (std::bit_cast<uint64_t>(sine) & odd) | (std::bit_cast<uint64_t>(cosine) & ~odd);
  // Quarter turns 0 and 3 keep the sign; 1 gives -sine, 2 gives -cosine.
  const uint64_t sign = static_cast<uint64_t>((quarter + 1) & 2) << 62;
  return std::bit_cast<double>(bits ^ sign);
}

/// Two uniform numbers of 53 bits from the words of one Philox block, in (0, 1] and [0, 1).
WEFT_INLINE double normal_of(uint32_t word0, uint32_t word1, uint32_t word2, uint32_t word3) {
  const double radius = (to_double(word0) * 0x1p21 + to_double(word1 >> 11) + 1.0) * 0x1p-53;
  const double angle = (to_double(word2) * 0x1p21 + to_double(word3 >> 11)) * 0x1p-53;
  return std::sqrt(-2.0 * log_of(radius)) * cos_of_turns(angle);
}

/// philox4x32 of kBlock consecutive counters, one array per word so that rounds vectorise.
WEFT_INLINE void philox_block(uint64_t key, uint64_t first, uint32_t (&words)[4][kBlock]) {
  for (int i = 0; i < kBlock; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    words[0][i] = static_cast<uint32_t>(index);
    words[1][i] = static_cast<uint32_t>(index >> 32);
    words[2][i] = 0;
    words[3][i] = 0;
  }
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlock; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * words[0][i];
      const uint64_t b = uint64_t{0xCD9E8D57u} * words[2][i];
      words[0][i] = static_cast<uint32_t>(b >> 32) ^ words[1][i] ^ key0;
      words[1][i] = static_cast<uint32_t>(b);
      words[2][i] = static_cast<uint32_t>(a >> 32) ^ words[3][i] ^ key1;
      words[3][i] = static_cast<uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

WEFT_INLINE void fill(uint64_t key, uint64_t first, int64_t count, double* out) {
  uint32_t words[4][kBlock];
  double values[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    philox_block(key, first + static_cast<uint64_t>(begin), words);
    for (int i = 0; i < kBlock; ++i) {
      values[i] = normal_of(words[0][i], words[1][i], words[2][i], words[3][i]);
    }
    std::copy_n(values, std::min<int64_t>(kBlock, count - begin), out + begin);
  }
}

void fill_baseline(uint64_t key, uint64_t first, int64_t count, double* out) {
  fill(key, first, count, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void fill_avx2(uint64_t key, uint64_t first, int64_t count,
                                               double* out) {
  fill(key, first, count, out);
}
#endif

}  // namespace

void RngStream::normals(uint64_t first, int64_t count, double* out) const {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    fill_avx2(key_, first, count, out);
    return;
  }
#endif
  fill_baseline(key_, first, count, out);
}

double RngStream::normal(uint64_t index) const {
  const PhiloxBlock words =
      philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                 {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
  return normal_of(words[0], words[1], words[2], words[3]);
}

}  // namespace weft
