// Vector erf, sigmoid and the activation functions with their slopes.
#include "weft/backend/cpu/simd-inl.h"

#if defined(WEFT_BACKEND_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_BACKEND_CPU_MATH_INL_H_
#undef WEFT_BACKEND_CPU_MATH_INL_H_
#else
#define WEFT_BACKEND_CPU_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

/// erf(x) to about 1 ulp: a polynomial near 0, 1 - exp(polynomial) beyond.
HWY_INLINE VF erf_fast(VF x) {
  const VF t = hn::Min(hn::Abs(x), set(10.0f));
  const VF s = hn::Mul(t, t);
  VF far = hn::MulAdd(set(-1.72853470e-5f), t, set(3.83197126e-4f));
  const VF u = hn::MulAdd(set(-3.88396438e-3f), t, set(2.42546219e-2f));
  far = hn::MulAdd(far, s, u);
  far = hn::MulAdd(far, t, set(-1.06777877e-1f));
  far = hn::MulAdd(far, t, set(-6.34846687e-1f));
  far = hn::MulAdd(far, t, set(-1.28717512e-1f));
  far = hn::Sub(hn::Mul(far, t), t);
  far = hn::CopySign(hn::Sub(set(1.0f), exp_fast(far)), x);
  VF near = set(-5.96761703e-4f);
  near = hn::MulAdd(near, s, set(4.99119423e-3f));
  near = hn::MulAdd(near, s, set(-2.67681349e-2f));
  near = hn::MulAdd(near, s, set(1.12819925e-1f));
  near = hn::MulAdd(near, s, set(-3.76125336e-1f));
  near = hn::MulAdd(near, s, set(1.28379166e-1f));
  near = hn::MulAdd(near, x, x);
  return hn::IfThenElse(hn::Gt(t, set(0.927734375f)), far, near);
}

/// 1 / d to about 1 ulp for d >= 1; 0 where that would be denormal. Far cheaper than a division.
HWY_INLINE VF reciprocal(VF d) {
  const VF r = hn::ApproximateReciprocal(d);
  return hn::MulAdd(r, hn::NegMulAdd(d, r, set(1.0f)), r);
}

/// s = 1 / (1 + e^-x) and rest = 1 - s. Finite for NaN: users multiply by x.
struct Sigmoid {
  VF s, rest;
};

/// The rest is a product, not a difference: the error of a reciprocal, which depends on the
/// processor, times a large x would be anything.
HWY_INLINE Sigmoid sigmoid_parts(VF x) {
  const hn::Rebind<int32_t, DF> di;
  const VF bounded = hn::Min(hn::Max(x, set(-88.0f)), set(88.0f));
  // Adding 1.5 * 2^23 leaves the nearest integer n in the low bits; e^-x = 2^n e^r.
  const VF magic = set(12582912.0f);
  const VF shifted = hn::MulAdd(bounded, set(-1.44269504f), magic);
  const VF n = hn::Sub(shifted, magic);
  VF r = hn::MulAdd(n, set(0.693359375f), bounded);  // -r
  r = hn::MulAdd(n, set(-2.12194440e-4f), r);
  VF p = set(-1.9875691500e-4f);  // odd coefficients are negative, for -r
  p = hn::MulAdd(p, r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(-8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(-1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::Add(hn::Sub(hn::Mul(hn::Mul(p, r), r), r), set(1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const VF e = hn::BitCast(DF(), hn::Add(hn::BitCast(di, p), exponent));
  const VF s = reciprocal(hn::Add(set(1.0f), e));
  return {s, hn::Mul(e, s)};
}

HWY_INLINE VF sigmoid(VF x) { return sigmoid_parts(x).s; }

struct Gelu {
  static HWY_INLINE VF value(VF x) {
    const VF half = hn::Mul(set(0.5f), x);
    return hn::MulAdd(half, erf_fast(hn::Mul(x, set(0.70710678f))), half);
  }
  static HWY_INLINE VF slope(VF x) {
    const VF cdf = hn::MulAdd(set(0.5f), erf_fast(hn::Mul(x, set(0.70710678f))), set(0.5f));
    const VF pdf = hn::Mul(set(0.39894228f), exp_fast(hn::Mul(hn::Mul(x, x), set(-0.5f))));
    return hn::MulAdd(x, pdf, cdf);
  }
};

/// 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  static HWY_INLINE VF twice_u(VF x) {
    const VF inner = hn::MulAdd(hn::Mul(x, x), set(0.044715f), set(1.0f));
    return hn::Mul(hn::Mul(set(1.5957691216f), x), inner);
  }
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, sigmoid(twice_u(x))); }
  static HWY_INLINE VF slope(VF x) {
    const auto [s, rest] = sigmoid_parts(twice_u(x));
    const VF du =
        hn::Mul(set(1.5957691216f), hn::MulAdd(hn::Mul(x, x), set(3 * 0.044715f), set(1.0f)));
    return hn::MulAdd(hn::Mul(x, du), hn::Mul(s, rest), s);
  }
};

struct Silu {
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, sigmoid(x)); }
  static HWY_INLINE VF slope(VF x) {
    const auto [s, rest] = sigmoid_parts(x);
    return hn::Mul(s, hn::MulAdd(x, rest, set(1.0f)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
