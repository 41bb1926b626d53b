// The row loops of rmsnorm, layernorm, their gradients and bias_grad, compiled once per
// instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/norm_isa.cpp"
#include "weft/backend/cpu/norm_isa.h"

#include <cmath>

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void rmsnorm(const NormArgs& args) {
  const int64_t width = args.width;
  for (int64_t row = args.begin; row < args.end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    T* y = static_cast<T*>(args.y) + row * width;
    const VF squares = sum_vectors(width, [&](auto get) HWY_ATTR {
      const VF value = get(x);
      return hn::Mul(value, value);
    });
    const float mean = sum_lanes(squares) / static_cast<float>(width);
    const float rstd = 1.0f / std::sqrt(mean + args.eps);
    args.rstd[row] = rstd;
    const VF scale = set(rstd);
    const float* w = args.w;
    for_vectors(width, [&](auto get, auto put)
                           HWY_ATTR { put(hn::Mul(hn::Mul(get(x), scale), get(w)), y); });
  }
}

// With n = x rstd and g = dy w: dx = rstd (g - n mean(g n)), dw += dy n.
template <class T>
void rmsnorm_grad(const NormArgs& args) {
  const int64_t width = args.width;
  for (int64_t row = args.begin; row < args.end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    const T* dy = static_cast<const T*>(args.dy) + row * width;
    const T* addend =
        args.addend == nullptr ? nullptr : static_cast<const T*>(args.addend) + row * width;
    T* dx = static_cast<T*>(args.dx) + row * width;
    const float* w = args.w;
    float* dw = args.dw;
    const VF rstd = set(args.rstd[row]);
    VF dot = hn::Zero(DF());
    for_vectors(width, [&](auto get, auto put) HWY_ATTR {
      const VF n = hn::Mul(get(x), rstd);
      const VF d = get(dy);
      dot = hn::MulAdd(hn::Mul(d, get(w)), n, dot);
      put(hn::MulAdd(d, n, get(dw)), dw);
    });
    const VF mean = set(sum_lanes(dot) / static_cast<float>(width));
    for_vectors(width, [&](auto get, auto put) HWY_ATTR {
      const VF n = hn::Mul(get(x), rstd);
      const VF g = hn::Mul(get(dy), get(w));
      VF result = hn::Mul(rstd, hn::NegMulAdd(n, mean, g));
      if (addend != nullptr) result = hn::Add(result, get(addend));
      put(result, dx);
    });
  }
}

template <class T>
void layernorm(const NormArgs& args) {
  const int64_t width = args.width;
  for (int64_t row = args.begin; row < args.end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    T* y = static_cast<T*>(args.y) + row * width;
    const VF total = sum_vectors(width, [&](auto get) HWY_ATTR { return get(x); });
    const float mean = sum_lanes(total) / static_cast<float>(width);
    const VF shift = set(mean);
    const int64_t whole = width / kLanes * kLanes;
    const VF squares = sum_vectors(whole, [&](auto get) HWY_ATTR {
      const VF value = hn::Sub(get(x), shift);
      return hn::Mul(value, value);
    });
    int64_t i = whole;
    float variance = sum_lanes(squares);
    for (; i < width; ++i) {  // lanes beyond the row would count as -mean
      const float value = as_float(x[i]) - mean;
      variance += value * value;
    }
    const float rstd = 1.0f / std::sqrt(variance / static_cast<float>(width) + args.eps);
    args.mean[row] = mean;
    args.rstd[row] = rstd;
    const VF scale = set(rstd);
    const float* w = args.w;
    const float* b = args.b;
    for_vectors(width, [&](auto get, auto put) HWY_ATTR {
      const VF n = hn::Mul(hn::Sub(get(x), shift), scale);
      put(hn::MulAdd(n, get(w), get(b)), y);
    });
  }
}

// With n = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)), dw += dy n,
// db += dy.
template <class T>
void layernorm_grad(const NormArgs& args) {
  const int64_t width = args.width;
  for (int64_t row = args.begin; row < args.end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    const T* dy = static_cast<const T*>(args.dy) + row * width;
    const T* addend =
        args.addend == nullptr ? nullptr : static_cast<const T*>(args.addend) + row * width;
    T* dx = static_cast<T*>(args.dx) + row * width;
    const float* w = args.w;
    float* dw = args.dw;
    float* db = args.db;
    const VF rstd = set(args.rstd[row]);
    const VF shift = set(args.mean[row]);
    VF total = hn::Zero(DF());
    VF dot = hn::Zero(DF());
    for_vectors(width, [&](auto get, auto put) HWY_ATTR {
      const VF n = hn::Mul(hn::Sub(get(x), shift), rstd);
      const VF d = get(dy);
      const VF g = hn::Mul(d, get(w));
      total = hn::Add(total, g);
      dot = hn::MulAdd(g, n, dot);
      put(hn::MulAdd(d, n, get(dw)), dw);
      put(hn::Add(get(db), d), db);
    });
    const VF mean_g = set(sum_lanes(total) / static_cast<float>(width));
    const VF mean_gn = set(sum_lanes(dot) / static_cast<float>(width));
    for_vectors(width, [&](auto get, auto put) HWY_ATTR {
      const VF n = hn::Mul(hn::Sub(get(x), shift), rstd);
      const VF g = hn::Mul(get(dy), get(w));
      VF result = hn::Mul(rstd, hn::Sub(hn::NegMulAdd(n, mean_gn, g), mean_g));
      if (addend != nullptr) result = hn::Add(result, get(addend));
      put(result, dx);
    });
  }
}

template <class T>
void add_rows(int64_t begin, int64_t end, int64_t width, const void* x, float* to) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    for_vectors(width, [&](auto get, auto put) HWY_ATTR { put(hn::Add(get(to), get(from)), to); });
  }
}

NormIsa isa() {
  return {WEFT_PER_FLOAT(rmsnorm), WEFT_PER_FLOAT(rmsnorm_grad), WEFT_PER_FLOAT(layernorm),
          WEFT_PER_FLOAT(layernorm_grad), WEFT_PER_FLOAT(add_rows)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const NormIsa& norm_isa() {
  static const NormIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
