// The loops of add, cast, activation, glu, dropout and their gradients, compiled once per
// instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/elementwise_isa.cpp"
#include "weft/backend/cpu/elementwise_isa.h"

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void add(int64_t count, const void* a, const void* b, void* y) {
  const T* pa = static_cast<const T*>(a);
  const T* pb = static_cast<const T*>(b);
  T* py = static_cast<T*>(y);
  for_vectors(count, [&](auto get, auto put) HWY_ATTR { put(hn::Add(get(pa), get(pb)), py); });
}

template <class To, class From>
void convert(int64_t count, const void* x, void* y) {
  const From* px = static_cast<const From*>(x);
  To* py = static_cast<To*>(y);
  for_vectors(count, [&](auto get, auto put) HWY_ATTR { put(get(px), py); });
}

template <class T, class Fn>
void activation(int64_t count, const void* x, void* y) {
  const T* px = static_cast<const T*>(x);
  T* py = static_cast<T*>(y);
  for_vectors(count, [&](auto get, auto put) HWY_ATTR { put(Fn::value(get(px)), py); });
}

template <class T, class Fn>
void activation_grad(int64_t count, const void* x, const void* dy, void* dx) {
  const T* px = static_cast<const T*>(x);
  const T* pdy = static_cast<const T*>(dy);
  T* pdx = static_cast<T*>(dx);
  for_vectors(
      count, [&](auto get, auto put) HWY_ATTR { put(hn::Mul(Fn::slope(get(px)), get(pdy)), pdx); });
}

template <class T, class Fn>
void glu(int64_t count, const void* gate, const void* up, void* y) {
  const T* pg = static_cast<const T*>(gate);
  const T* pu = static_cast<const T*>(up);
  T* py = static_cast<T*>(y);
  for_vectors(count,
              [&](auto get, auto put) HWY_ATTR { put(hn::Mul(Fn::value(get(pg)), get(pu)), py); });
}

template <class T, class Fn>
void glu_grad(int64_t count, const void* gate, const void* up, const void* dy, void* dgate,
              void* dup) {
  const T* pg = static_cast<const T*>(gate);
  const T* pu = static_cast<const T*>(up);
  const T* pdy = static_cast<const T*>(dy);
  T* pdg = static_cast<T*>(dgate);
  T* pdu = static_cast<T*>(dup);
  for_vectors(count, [&](auto get, auto put) HWY_ATTR {
    const VF g = get(pg), u = get(pu), d = get(pdy);
    put(hn::Mul(hn::Mul(Fn::slope(g), u), d), pdg);
    put(hn::Mul(Fn::value(g), d), pdu);
  });
}

/// Random words of 16 consecutive feature blocks, words[j][w]: dropout_block(), 16 at a time so
/// that the compiler can use vectors.
HWY_INLINE void dropout_words(uint64_t key, uint64_t sample, uint32_t position, uint32_t first,
                              uint32_t (*words)[4]) {
  constexpr int kBlocks = 16;
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int j = 0; j < kBlocks; ++j) {
    c0[j] = first + static_cast<uint32_t>(j);
    c1[j] = position;
    c2[j] = static_cast<uint32_t>(sample);
    c3[j] = static_cast<uint32_t>(sample >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kBlocks; ++j) {
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
  for (int j = 0; j < kBlocks; ++j) {
    words[j][0] = c0[j];
    words[j][1] = c1[j];
    words[j][2] = c2[j];
    words[j][3] = c3[j];
  }
}

/// One position, from feature `first` on: y = mask * x * keep_scale (+ residual).
template <class T>
void dropout_row(int64_t width, const void* x, const void* residual, uint64_t key, uint64_t sample,
                 uint32_t position, int64_t first, uint32_t threshold, float keep_scale, void* y) {
  const T* px = static_cast<const T*>(x);
  const T* pr = static_cast<const T*>(residual);
  T* py = static_cast<T*>(y);
  constexpr int64_t kChunk = 64;
  uint32_t words[16][4];
  float mask[kChunk];
  for (int64_t h = 0, count = 0; h < width; h += count) {
    const int64_t skip = (first + h) % 4;  // features of the block before the piece begins
    dropout_words(key, sample, position, static_cast<uint32_t>((first + h) / 4), words);
    const uint32_t* flat = &words[0][0];
    for (int64_t i = 0; i < kChunk; ++i) mask[i] = (flat[i] >> 8) < threshold ? 0.0f : keep_scale;
    count = width - h < kChunk - skip ? width - h : kChunk - skip;
    const float* pm = mask + skip;
    for_vectors(count, [&](auto get, auto put) HWY_ATTR {
      const VF kept =
          hn::IfThenElseZero(hn::Gt(get(pm), hn::Zero(DF())), hn::Mul(get(px + h), get(pm)));
      put(pr == nullptr ? kept : hn::Add(kept, get(pr + h)), py + h);
    });
  }
}

ElementwiseIsa isa() {
  return {
      WEFT_PER_FLOAT(add),
      {WEFT_PER_FLOAT_WITH(convert, float), WEFT_PER_FLOAT_WITH(convert, BF16),
       WEFT_PER_FLOAT_WITH(convert, F16)},
      {WEFT_PER_FLOAT_WITH(activation, Gelu), WEFT_PER_FLOAT_WITH(activation, GeluTanh),
       WEFT_PER_FLOAT_WITH(activation, Silu)},
      {WEFT_PER_FLOAT_WITH(activation_grad, Gelu), WEFT_PER_FLOAT_WITH(activation_grad, GeluTanh),
       WEFT_PER_FLOAT_WITH(activation_grad, Silu)},
      {WEFT_PER_FLOAT_WITH(glu, Gelu), WEFT_PER_FLOAT_WITH(glu, GeluTanh),
       WEFT_PER_FLOAT_WITH(glu, Silu)},
      {WEFT_PER_FLOAT_WITH(glu_grad, Gelu), WEFT_PER_FLOAT_WITH(glu_grad, GeluTanh),
       WEFT_PER_FLOAT_WITH(glu_grad, Silu)},
      WEFT_PER_FLOAT(dropout_row),
  };
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const ElementwiseIsa& elementwise_isa() {
  static const ElementwiseIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
