// Vector helpers shared by the kernels, compiled once per instruction set (see
// hwy/foreach_target.h): float vectors loaded from and stored to f32, bf16 or f16 memory, with
// tails.
#include <cstdint>

#include "hwy/highway.h"
#include "weft/backend/cpu/float_table.h"

#if defined(WEFT_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_BACKEND_CPU_SIMD_INL_H_
#undef WEFT_BACKEND_CPU_SIMD_INL_H_
#else
#define WEFT_BACKEND_CPU_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = HWY_LANES(float);

// Targets with the conversions of F16C; Highway's own fallback truncates and loses infinities.
#undef WEFT_F16C
#define WEFT_F16C (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

/// Lanes(d) elements as floats.
template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const BF16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const F16* from) {
#if WEFT_F16C
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  float buffer[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::MaxLanes(d); ++i) buffer[i] = half_to_float(from[i]);
  return hn::LoadU(d, buffer);
#endif
}
template <class T>
HWY_INLINE VF load(const T* from) {
  return load_vector(DF(), from);
}

HWY_INLINE void store(VF value, float* to) { hn::StoreU(value, DF(), to); }
/// Rounds to nearest even; NaN stays NaN.
HWY_INLINE void store(VF value, BF16* to) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<uint32_t, DF> d32;
  const hn::Rebind<int32_t, DF> di32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
  const auto nan = hn::RebindMask(d32, hn::IsNaN(value));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, high)), d16, reinterpret_cast<uint16_t*>(to));
}

/// Rounds to nearest even, beyond the largest to infinity; NaN stays NaN.
HWY_INLINE void store(VF value, F16* to) {
#if WEFT_F16C
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, value), d16, reinterpret_cast<hwy::float16_t*>(to));
#else
  float buffer[kLanes];
  store(value, buffer);
  for (int64_t i = 0; i < kLanes; ++i) to[i] = float_to_half(buffer[i]);
#endif
}

/// The first `count` < kLanes elements; the rest is 0.
template <class T>
HWY_INLINE VF load_tail(const T* from, int64_t count) {
  T buffer[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = from[i];
  return load(buffer);
}
template <class T>
HWY_INLINE void store_tail(VF value, T* to, int64_t count) {
  T buffer[kLanes];
  store(value, buffer);
  for (int64_t i = 0; i < count; ++i) to[i] = buffer[i];
}

HWY_INLINE VF set(float value) { return hn::Set(DF(), value); }
HWY_INLINE float sum_lanes(VF value) { return hn::GetLane(hn::SumOfLanes(DF(), value)); }
HWY_INLINE float max_lanes(VF value) { return hn::GetLane(hn::MaxOfLanes(DF(), value)); }

/// e^x to about 1 ulp for x <= 88.7 and its largest finite value beyond; 0 below -87.3 (results
/// would be denormal), so that a masked score of -infinity gives an exact 0. NaN stays NaN.
HWY_INLINE VF exp_fast(VF x) {
  const hn::Rebind<int32_t, DF> di;
  const auto tiny = hn::Lt(x, set(-87.33654f));
  const VF bounded =
      hn::IfThenZeroElse(tiny, hn::IfThenElse(hn::Gt(x, set(88.72283f)), set(88.72283f), x));
  const VF n = hn::Round(hn::Mul(bounded, set(1.44269504f)));
  // ln 2 in two pieces; the first has few bits, so n * ln2_high is exact.
  VF r = hn::NegMulAdd(n, set(0.693359375f), bounded);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  VF p = set(1.9875691500e-4f);
  p = hn::MulAdd(p, r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), set(1.0f));
  // 2^n as two factors, so that n = 128 (x near 88.7) does not overflow the exponent field.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const VF scale1 = hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(half, bias)));
  const VF scale2 = hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::IfThenZeroElse(tiny, hn::Mul(hn::Mul(p, scale1), scale2));
}

/// Calls f(get, put) for every vector of [0, count): `get(pointer)` and `put(value, pointer)` touch
/// the elements of that vector, the last time only those that exist.
template <class F>
HWY_INLINE void for_vectors(int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    f([i](auto* p) HWY_ATTR { return load(p + i); },
      [i](VF v, auto* p) HWY_ATTR { store(v, p + i); });
  }
  if (const int64_t rest = count - i; rest > 0) {
    f([i, rest](auto* p) HWY_ATTR { return load_tail(p + i, rest); },
      [i, rest](VF v, auto* p) HWY_ATTR { store_tail(v, p + i, rest); });
  }
}

/// Sum over the vectors of [0, count) of f(get), in four chains that do not wait for each other. In
/// the last, partial vector `get` gives zeros beyond the end, for which f must give 0.
template <class F>
HWY_INLINE VF sum_vectors(int64_t count, const F& f) {
  VF s0 = hn::Zero(DF()), s1 = s0, s2 = s0, s3 = s0;
  const auto at = [&](int64_t i)
                      HWY_ATTR { return f([i](auto* p) HWY_ATTR { return load(p + i); }); };
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    s0 = hn::Add(s0, at(i));
    s1 = hn::Add(s1, at(i + kLanes));
    s2 = hn::Add(s2, at(i + 2 * kLanes));
    s3 = hn::Add(s3, at(i + 3 * kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) s0 = hn::Add(s0, at(i));
  if (const int64_t rest = count - i; rest > 0) {
    s1 = hn::Add(s1, f([i, rest](auto* p) HWY_ATTR { return load_tail(p + i, rest); }));
  }
  return hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
