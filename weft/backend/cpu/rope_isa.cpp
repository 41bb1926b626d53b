// The loop of rope, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/rope_isa.cpp"
#include "weft/backend/cpu/rope_isa.h"

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void rotate(int64_t heads, int64_t head_dim, const void* x, const float* table, bool inverse,
            void* y) {
  const int64_t half = head_dim / 2;
  const VF direction = set(inverse ? -1.0f : 1.0f);
  for (int64_t head = 0; head < heads; ++head) {
    const T* from = static_cast<const T*>(x) + head * head_dim;
    T* to = static_cast<T*>(y) + head * head_dim;
    for_vectors(half, [&](auto get, auto put) HWY_ATTR {
      const VF a = get(from), b = get(from + half);
      const VF cosine = get(table), sine = hn::Mul(direction, get(table + half));
      put(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), to);
      put(hn::MulAdd(a, sine, hn::Mul(b, cosine)), to + half);
    });
  }
}

RopeIsa isa() { return {WEFT_PER_FLOAT(rotate)}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const RopeIsa& rope_isa() {
  static const RopeIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
