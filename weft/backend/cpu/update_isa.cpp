// Loops of the optimizer updates and of sums, compiled once per instruction set. They are plain
// loops over the shared scalar arithmetic, which the compiler turns into vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/update_isa.cpp"
#include "weft/backend/cpu/update_isa.h"

#include <algorithm>
#include <type_traits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

/// Stores a moment: as it is, or rounded with 16 random bits.
inline void keep(float value, uint32_t, float& to) { to = value; }
inline void keep(float value, uint32_t random, BF16& to) { to = round_stochastic(value, random); }

template <class Moment>
constexpr bool kRounded = std::is_same_v<Moment, BF16>;

template <class Copy, class Moment>
void adamw(const AdamwScalars<float>& scalars, const UpdateArgs& args) {
  const AdamwScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *g = args.g;
  const auto *m = static_cast<const Moment*>(args.m), *v = static_cast<const Moment*>(args.v);
  float* new_w = args.new_w;
  auto *new_m = static_cast<Moment*>(args.new_m), *new_v = static_cast<Moment*>(args.new_v);
  auto* copy = static_cast<Copy*>(args.copy);
  const uint32_t* words = args.words;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float wi = w[i], mi = as_float(m[i]), vi = as_float(v[i]);
    adamw_element(s, wi, mi, vi, g[i]);
    const uint32_t word = kRounded<Moment> ? words[i] : 0;
    new_w[i] = wi;
    keep(mi, first_random(word), new_m[i]);
    keep(vi, second_random(word), new_v[i]);
    if constexpr (!std::is_void_v<Copy>) assign(copy[i], wi);
  }
}

template <class Copy>
void sgd(const SgdScalars<float>& scalars, const UpdateArgs& args) {
  const SgdScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *g = args.g;
  float* new_w = args.new_w;
  auto* copy = static_cast<Copy*>(args.copy);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float wi = sgd_element(s, w[i], g[i]);
    new_w[i] = wi;
    if constexpr (!std::is_void_v<Copy>) assign(copy[i], wi);
  }
}

template <class Copy, class Moment>
void sgd_momentum(const SgdScalars<float>& scalars, const UpdateArgs& args) {
  const SgdScalars<float> s = scalars;
  const int64_t count = args.count;
  const float *w = args.w, *g = args.g;
  const auto* m = static_cast<const Moment*>(args.m);
  float* new_w = args.new_w;
  auto* new_m = static_cast<Moment*>(args.new_m);
  auto* copy = static_cast<Copy*>(args.copy);
  const uint32_t* words = args.words;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float wi = w[i], mi = as_float(m[i]);
    sgd_momentum_element(s, wi, mi, g[i]);
    new_w[i] = wi;
    keep(mi, first_random(kRounded<Moment> ? words[i] : 0), new_m[i]);
    if constexpr (!std::is_void_v<Copy>) assign(copy[i], wi);
  }
}

/// 16 Philox blocks at a time, so that the compiler can use vectors.
void words(uint64_t key, int64_t number, int64_t count, uint32_t* to) {
  constexpr int64_t kBlocks = 16;
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int64_t done = 0; done < count;) {
    const auto first = static_cast<uint64_t>(number + done);
    for (int64_t j = 0; j < kBlocks; ++j) {
      const uint64_t block = first / 4 + static_cast<uint64_t>(j);
      c0[j] = static_cast<uint32_t>(block);
      c1[j] = static_cast<uint32_t>(block >> 32);
      c2[j] = c3[j] = 0;
    }
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int64_t j = 0; j < kBlocks; ++j) {
        const uint64_t a = uint64_t{0xD2511F53u} * c0[j];
        const uint64_t b = uint64_t{0xCD9E8D57u} * c2[j];
        c0[j] = static_cast<uint32_t>(b >> 32) ^ c1[j] ^ k0;
        c2[j] = static_cast<uint32_t>(a >> 32) ^ c3[j] ^ k1;
        c1[j] = static_cast<uint32_t>(b);
        c3[j] = static_cast<uint32_t>(a);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto skip = static_cast<int64_t>(first % 4);
    const int64_t size = std::min(count - done, 4 * kBlocks - skip);
    for (int64_t i = 0; i < size; ++i) {
      const uint32_t* lanes[] = {c0, c1, c2, c3};
      to[done + i] = lanes[(skip + i) % 4][(skip + i) / 4];
    }
    done += size;
  }
}

template <class T>
double sum_squares(int64_t count, const void* x) {
  const T* from = static_cast<const T*>(x);
  constexpr int64_t kWays = 16;
  double sums[kWays] = {};
  int64_t i = 0;
  for (; i + kWays <= count; i += kWays) {
    for (int64_t j = 0; j < kWays; ++j) {
      const double value = as_float(from[i + j]);
      sums[j] += value * value;
    }
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) {
    const double value = as_float(from[i]);
    total += value * value;
  }
  return total;
}

UpdateIsa isa() {
  return {{{&adamw<void, float>, &adamw<BF16, float>, &adamw<F16, float>},
           {&adamw<void, BF16>, &adamw<BF16, BF16>, &adamw<F16, BF16>}},
          {&sgd<void>, &sgd<BF16>, &sgd<F16>},
          {{&sgd_momentum<void, float>, &sgd_momentum<BF16, float>, &sgd_momentum<F16, float>},
           {&sgd_momentum<void, BF16>, &sgd_momentum<BF16, BF16>, &sgd_momentum<F16, BF16>}},
          &words,
          {&sum_squares<float>, &sum_squares<BF16>, &sum_squares<F16>}};
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
