// Loops of the optimizer updates and of sums, compiled once per instruction set. They are plain
// loops over the shared scalar arithmetic, which the compiler turns into vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/update_isa.cpp"
#include "weft/backend/cpu/update_isa.h"

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <bool kCopy>
void adamw(const AdamwScalars<float>& scalars, const UpdateArgs& args) {
  const AdamwScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *m = args.m, *v = args.v, *g = args.g;
  float *new_w = args.new_w, *new_m = args.new_m, *new_v = args.new_v;
  auto* copy = static_cast<BF16*>(args.copy);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float wi = w[i], mi = m[i], vi = v[i];
    adamw_element(s, wi, mi, vi, g[i]);
    new_w[i] = wi;
    new_m[i] = mi;
    new_v[i] = vi;
    if constexpr (kCopy) copy[i] = to_bf16(wi);
  }
}

template <bool kCopy>
void sgd(const SgdScalars<float>& scalars, const UpdateArgs& args) {
  const SgdScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *g = args.g;
  float* new_w = args.new_w;
  auto* copy = static_cast<BF16*>(args.copy);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float wi = sgd_element(s, w[i], g[i]);
    new_w[i] = wi;
    if constexpr (kCopy) copy[i] = to_bf16(wi);
  }
}

template <bool kCopy>
void sgd_momentum(const SgdScalars<float>& scalars, const UpdateArgs& args) {
  const SgdScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *m = args.m, *g = args.g;
  float *new_w = args.new_w, *new_m = args.new_m;
  auto* copy = static_cast<BF16*>(args.copy);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float wi = w[i], mi = m[i];
    sgd_momentum_element(s, wi, mi, g[i]);
    new_w[i] = wi;
    new_m[i] = mi;
    if constexpr (kCopy) copy[i] = to_bf16(wi);
  }
}

inline double widen(float x) { return x; }
inline double widen(BF16 x) { return to_float(x); }

template <class T>
double sum_squares(int64_t count, const void* x) {
  const T* from = static_cast<const T*>(x);
  constexpr int64_t kWays = 16;
  double sums[kWays] = {};
  int64_t i = 0;
  for (; i + kWays <= count; i += kWays) {
    for (int64_t j = 0; j < kWays; ++j) {
      const double value = widen(from[i + j]);
      sums[j] += value * value;
    }
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) total += widen(from[i]) * widen(from[i]);
  return total;
}

UpdateIsa isa() {
  return {{&adamw<false>, &adamw<true>},
          {&sgd<false>, &sgd<true>},
          {&sgd_momentum<false>, &sgd_momentum<true>},
          {&sum_squares<float>, &sum_squares<BF16>}};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const UpdateIsa& update_isa() {
  static const UpdateIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
