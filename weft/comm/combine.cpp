#include "weft/comm/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/check.h"
#include "weft/comm/combine_isa.h"

namespace weft {
namespace {

using Sources = std::span<const std::byte* const>;

template <class T>
const T& at(const std::byte* data, int64_t index) {
  return reinterpret_cast<const T*>(data)[index];
}

template <class T>
void logsumexp(Sources sources, T* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    double largest = -std::numeric_limits<double>::infinity();
    double nan = 0;
    for (const std::byte* source : sources) {
      const double value = at<T>(source, i);
      if (std::isnan(value)) nan = value;
      largest = std::max(largest, value);
    }
    double result = largest + nan;
    if (std::isfinite(result)) {
      double sum = 0;
      for (const std::byte* source : sources) sum += std::exp(at<T>(source, i) - largest);
      result = largest + std::log(sum);
    }
    out[i] = static_cast<T>(result);
  }
}

}  // namespace

bool can_combine(DType dtype, Reduction reduction) {
  if (dtype == DType::f64 || dtype == DType::f32) return true;
  return reduction == Reduction::sum && (dtype == DType::bf16 || dtype == DType::f16 ||
                                         dtype == DType::i64 || dtype == DType::i32);
}

void combine(DType dtype, Reduction reduction, Sources sources, std::byte* out, int64_t count) {
  WEFT_CHECK(can_combine(dtype, reduction) && !sources.empty(), "combine",
             "cannot reduce {} of {} members", dtype_name(dtype), sources.size());
  if (reduction == Reduction::logsumexp) {
    if (dtype == DType::f64) return logsumexp(sources, reinterpret_cast<double*>(out), count);
    return logsumexp(sources, reinterpret_cast<float*>(out), count);
  }
  const CombineIsa& isa = combine_isa();
  switch (dtype) {
    case DType::f64: return isa.f64(sources, out, count);
    case DType::f32: return isa.f32(sources, out, count);
    case DType::bf16: return isa.bf16(sources, out, count);
    case DType::f16: return isa.f16(sources, out, count);
    case DType::i64: return isa.i64(sources, out, count);
    case DType::i32: return isa.i32(sources, out, count);
    default: break;
  }
}

}  // namespace weft
