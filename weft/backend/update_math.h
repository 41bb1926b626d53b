// The arithmetic of the optimizer updates, one element at a time, in the parameter type P (float,
// or double on ref). Every backend and every lane performs exactly these operations in exactly
// this order without contraction, so that a slice of weights updated anywhere gets the same bits.
// A vectorised kernel repeats the body lane by lane.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "weft/base/dtype.h"
#include "weft/base/rng.h"

namespace weft {

/// Scalars of one AdamW update, each computed in double and rounded to P once.
template <class P>
struct AdamwScalars {
  P factor;  // gradient scale of the verdict
  P beta2;
  P rest1;  // 1 - beta1
  P rest2;  // 1 - beta2
  P eps;
  P decay;  // lr * weight_decay
  P rate;   // lr / hyper1
  P root;   // sqrt(hyper2)
};

/// `hyper` = {lr, 1 - beta1^t, 1 - beta2^t}.
template <class P>
AdamwScalars<P> adamw_scalars(const P* hyper, P factor, double beta1, double beta2, double eps,
                              double weight_decay) {
  const double lr = hyper[0];
  return {factor,
          static_cast<P>(beta2),
          static_cast<P>(1.0 - beta1),
          static_cast<P>(1.0 - beta2),
          static_cast<P>(eps),
          static_cast<P>(lr * weight_decay),
          static_cast<P>(lr / static_cast<double>(hyper[1])),
          static_cast<P>(std::sqrt(static_cast<double>(hyper[2])))};
}

template <class P>
void adamw_element(const AdamwScalars<P>& s, P& w, P& m, P& v, P g) {
  g = g * s.factor;
  m = m + s.rest1 * (g - m);
  v = s.beta2 * v + s.rest2 * (g * g);
  w = w - s.decay * w;
  w = w - (s.rate * m) / (std::sqrt(v) / s.root + s.eps);
}

template <class P>
struct SgdScalars {
  P factor;
  P momentum;
  P weight_decay;
  P lr;
};

/// Plain SGD: `buffer` is not touched. Returns the new weight.
template <class P>
P sgd_element(const SgdScalars<P>& s, P w, P g) {
  g = g * s.factor + s.weight_decay * w;
  return w - s.lr * g;
}

template <class P>
void sgd_momentum_element(const SgdScalars<P>& s, P& w, P& buffer, P g) {
  g = g * s.factor + s.weight_decay * w;
  buffer = s.momentum * buffer + g;
  w = w - s.lr * buffer;
}

/// `value` as bfloat16: up with the probability of its distance from the neighbour below (by
/// magnitude), so that the mean over `random`, 16 uniform bits, is the value itself. What bfloat16
/// holds stays as it is.
inline BF16 round_stochastic(float value, uint32_t random) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16)};
}

/// 32 random bits of element `number` under the key of (seed, update, tensor): elements of four
/// consecutive numbers share one Philox block.
inline uint32_t element_word(uint64_t key, uint64_t number) {
  const uint64_t block = number / 4;
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)})[number % 4];
}

/// The random bits of a moment of one element: those of the first moment (or momentum) and of the
/// second are the halves of one word.
inline uint32_t first_random(uint32_t word) { return word & 0xffffu; }
inline uint32_t second_random(uint32_t word) { return word >> 16; }

}  // namespace weft
