// The row loops of the losses, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/loss_isa.cpp"
#include "weft/backend/cpu/loss_isa.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = 2048;  // values summed in f32 before they join the double sum

template <class T>
float largest(int64_t width, const T* row) {
  const VF least = set(-std::numeric_limits<float>::infinity());
  VF m0 = least, m1 = least;
  int64_t i = 0;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    m0 = hn::Max(m0, load(row + i));
    m1 = hn::Max(m1, load(row + i + kLanes));
  }
  float result = max_lanes(hn::Max(m0, m1));
  for (; i < width; ++i) result = std::max(result, as_float(row[i]));
  return result;
}

/// Sum of exp(row[i] - shift); keeps the terms in `terms` unless it is nullptr.
template <class T>
double sum_exp(int64_t width, const T* row, float shift, float* terms) {
  const VF vshift = set(shift);
  double sum = 0;
  for (int64_t begin = 0; begin < width; begin += kChunk) {
    const int64_t end = std::min(width, begin + kChunk);
    VF s0 = hn::Zero(DF()), s1 = hn::Zero(DF());
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      const VF e0 = exp_fast(hn::Sub(load(row + i), vshift));
      const VF e1 = exp_fast(hn::Sub(load(row + i + kLanes), vshift));
      s0 = hn::Add(s0, e0);
      s1 = hn::Add(s1, e1);
      if (terms != nullptr) {
        store(e0, terms + i);
        store(e1, terms + i + kLanes);
      }
    }
    sum += sum_lanes(hn::Add(s0, s1));
    for (; i < end; ++i) {
      float term[kLanes];
      store(exp_fast(set(as_float(row[i]) - shift)), term);
      sum += term[0];
      if (terms != nullptr) terms[i] = term[0];
    }
  }
  return sum;
}

template <class T>
double log_sum_exp(int64_t width, const void* logits, int64_t label, double* picked) {
  const T* row = static_cast<const T*>(logits);
  const float most = largest(width, row);
  // Of no columns, or of -infinities alone, the result is -infinity.
  const float shift = most == -std::numeric_limits<float>::infinity() ? 0.0f : most;
  if (label >= 0) *picked = as_float(row[label]);
  return shift + std::log(sum_exp<T>(width, row, shift, nullptr));
}

template <class T>
void softmax_grad(int64_t width, const void* logits, float lse, float scale, int64_t label,
                  void* result) {
  const T* row = static_cast<const T*>(logits);
  T* to = static_cast<T*>(result);
  const float at_label = label < 0 ? 0.0f : scale * (std::exp(as_float(row[label]) - lse) - 1.0f);
  const VF vlse = set(lse), vscale = set(scale);
  for_vectors(width, [&](auto get, auto put)
                         HWY_ATTR { put(hn::Mul(vscale, exp_fast(hn::Sub(get(row), vlse))), to); });
  if (label >= 0) assign(to[label], at_label);
}

template <class T>
double train(int64_t width, float* logits, float scale, int64_t label) {
  const float shift = largest(width, logits);
  const double picked = logits[label];
  const double sum = sum_exp<float>(width, logits, shift, logits);
  const double probability = logits[label] / sum;
  const VF factor = set(static_cast<float>(scale / sum));
  T* to = reinterpret_cast<T*>(logits);  // a bf16 store never passes the loads
  for_vectors(width, [&](auto get, auto put) HWY_ATTR { put(hn::Mul(get(logits), factor), to); });
  const auto at_label = static_cast<float>(scale * (probability - 1.0));
  assign(to[label], at_label);
  return shift + std::log(sum) - picked;
}

LossIsa isa() {
  return {WEFT_PER_FLOAT(log_sum_exp), WEFT_PER_FLOAT(softmax_grad), {&train<float>, &train<BF16>}};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const LossIsa& loss_isa() {
  static const LossIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
