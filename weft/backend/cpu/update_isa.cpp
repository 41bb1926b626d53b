// Loops of the optimizer updates and of sums, compiled once per instruction set. They are plain
// loops over the shared scalar arithmetic, which the compiler turns into vectors; only the random
// words, whose 64-bit products it does not see through, name their instructions.
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

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;
using DU = hn::ScalableTag<uint32_t>;
using VU = hn::Vec<DU>;
constexpr int64_t kBlocks = HWY_LANES(uint32_t);

/// Lower and upper halves of the 64-bit products of all lanes.
HWY_INLINE void multiply(VU x, VU factor, VU& low, VU& high) {
  const DU d;
  const hn::Repartition<uint64_t, DU> d64;
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

constexpr int kWays = 2;  // vectors at a time: one alone waits for its own products
constexpr int64_t kWords = kWays * 4 * kBlocks;

/// The kWords words of Philox blocks block, block + 1, …: philox4x32, a block per lane.
HWY_INLINE void words_of_blocks(uint64_t key, uint64_t block, uint32_t* to) {
  const DU d;
  VU c0[kWays], c1[kWays], c2[kWays], c3[kWays];
  for (int way = 0; way < kWays; ++way) {
    const uint64_t first = block + static_cast<uint64_t>(way * kBlocks);
    const VU base = hn::Set(d, static_cast<uint32_t>(first));
    const VU high = hn::Set(d, static_cast<uint32_t>(first >> 32));
    c0[way] = hn::Add(base, hn::Iota(d, 0u));
    c1[way] = hn::IfThenElse(hn::Lt(c0[way], base), hn::Add(high, hn::Set(d, 1u)), high);
    c2[way] = c3[way] = hn::Zero(d);
  }
  VU k0 = hn::Set(d, static_cast<uint32_t>(key)), k1 = hn::Set(d, static_cast<uint32_t>(key >> 32));
  for (int round = 0; round < 10; ++round) {
    for (int way = 0; way < kWays; ++way) {
      VU a_low, a_high, b_low, b_high;
      multiply(c0[way], hn::Set(d, 0xD2511F53u), a_low, a_high);
      multiply(c2[way], hn::Set(d, 0xCD9E8D57u), b_low, b_high);
      c0[way] = hn::Xor3(b_high, c1[way], k0);
      c2[way] = hn::Xor3(a_high, c3[way], k1);
      c1[way] = b_low;
      c3[way] = a_low;
    }
    k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9u));
    k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85u));
  }
  for (int way = 0; way < kWays; ++way) {
    hn::StoreInterleaved4(c0[way], c1[way], c2[way], c3[way], d, to + way * 4 * kBlocks);
  }
}
#endif

/// element_word of elements number, number + 1, …
void words(uint64_t key, int64_t number, int64_t count, uint32_t* to) {
  auto at = static_cast<uint64_t>(number);
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < count; ++i) to[i] = element_word(key, at + static_cast<uint64_t>(i));
#else
  for (; count > 0 && at % 4 != 0; ++at, --count) *to++ = element_word(key, at);
  for (; count >= kWords; at += kWords, to += kWords, count -= kWords) {
    words_of_blocks(key, at / 4, to);
  }
  if (count == 0) return;
  uint32_t rest[kWords];
  words_of_blocks(key, at / 4, rest);
  std::copy(rest, rest + count, to);
#endif
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
