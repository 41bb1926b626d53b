// The row loops of dispatch and combine, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/experts_isa.cpp"
#include "weft/backend/cpu/experts_isa.h"

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void scale(int64_t width, float weight, const void* x, void* y) {
  const T* px = static_cast<const T*>(x);
  T* py = static_cast<T*>(y);
  for_vectors(width, [&](auto get, auto put) HWY_ATTR { put(hn::Mul(set(weight), get(px)), py); });
}

template <class T>
void add_up(int64_t width, int64_t count, const void* const* rows, const float* weights,
            const void* residual, void* y) {
  const T* pr = static_cast<const T*>(residual);
  T* py = static_cast<T*>(y);
  for_vectors(width, [&](auto get, auto put) HWY_ATTR {
    VF sum = hn::Zero(DF());
    for (int64_t j = 0; j < count; ++j) {
      sum = hn::MulAdd(set(weights[j]), get(static_cast<const T*>(rows[j])), sum);
    }
    put(pr == nullptr ? sum : hn::Add(sum, get(pr)), py);
  });
}

template <class T>
float dot(int64_t width, const void* a, const void* b) {
  const T* pa = static_cast<const T*>(a);
  const T* pb = static_cast<const T*>(b);
  return sum_lanes(
      sum_vectors(width, [&](auto get) HWY_ATTR { return hn::Mul(get(pa), get(pb)); }));
}

ExpertsIsa isa() { return {WEFT_PER_FLOAT(scale), WEFT_PER_FLOAT(add_up), WEFT_PER_FLOAT(dot)}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const ExpertsIsa& experts_isa() {
  static const ExpertsIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
