// Loops of the sums, compiled once per instruction set. They are plain loops, which the compiler
// turns into vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/comm/combine_isa.cpp"
#include "weft/comm/combine_isa.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "weft/base/half_math.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {
namespace {

using Sources = std::span<const std::byte* const>;

// Elements summed at a time; the sums stay in the first-level cache.
constexpr int64_t kBlock = 1024;

template <class T>
const T* at(const std::byte* data, int64_t offset) {
  return reinterpret_cast<const T*>(data) + offset;
}

inline float widen(BF16 value) { return to_float(value); }
inline float widen(F16 value) { return half_to_float(value); }
inline void narrow_to(float value, BF16& out) { out = to_bf16(value); }
inline void narrow_to(float value, F16& out) { out = float_to_half(value); }

template <class T>
void sum_wide(Sources sources, std::byte* out, int64_t count) {
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                 std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;
  Sum sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    std::memcpy(sums, at<T>(sources[0], begin), static_cast<size_t>(size) * sizeof(T));
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = at<T>(sources[s], begin);
      for (int64_t i = 0; i < size; ++i) sums[i] += static_cast<Sum>(source[i]);
    }
    std::memcpy(out + begin * static_cast<int64_t>(sizeof(T)), sums,
                static_cast<size_t>(size) * sizeof(T));
  }
}

template <class T>
void sum_narrow(Sources sources, std::byte* out, int64_t count) {
  float sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    const T* first = at<T>(sources[0], begin);
    for (int64_t i = 0; i < size; ++i) sums[i] = widen(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = at<T>(sources[s], begin);
      for (int64_t i = 0; i < size; ++i) sums[i] += widen(source[i]);
    }
    T* rounded = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < size; ++i) narrow_to(sums[i], rounded[i]);
  }
}

CombineIsa isa() {
  return {&sum_wide<double>, &sum_wide<float>,   &sum_narrow<BF16>,
          &sum_narrow<F16>,  &sum_wide<int64_t>, &sum_wide<int32_t>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

HWY_EXPORT(isa);

const CombineIsa& combine_isa() {
  static const CombineIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft
#endif
