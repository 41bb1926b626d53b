// The tolerance table: the only place where closeness of kernels is a number.
#include <fmt/core.h>

#include <cmath>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

struct Bound {
  double nmse;      // |got - expected|^2 / |expected|^2 over the tensor
  double relative;  // |got_i - expected_i| / (|expected_i| + rms(expected))
};

/// Tensors of fewer elements are judged by `relative` alone.
constexpr int64_t kAveraged = 16;

/// Columns by the precision that limits the result.
struct Bounds {
  Bound f64, f32, bf16, f16;
};

// bf16 keeps 8 bits (half a unit = 2^-9 relative), f16 11 bits, f32 24 bits.
constexpr Bounds kElementwise = {{1e-28, 1e-14}, {1e-12, 2e-6}, {1e-5, 0x1p-7}, {1e-7, 0x1p-10}};
constexpr Bounds kSum = {{1e-26, 1e-13}, {1e-11, 1e-5}, {2e-5, 0x1p-7}, {4e-7, 0x1p-10}};
constexpr Bounds kFused = {{1e-24, 1e-12}, {1e-9, 5e-5}, {2e-4, 0x1p-5}, {4e-6, 0x1p-8}};

Bound bound_of(Tolerance tolerance, DType dtype) {
  const Bounds& row = tolerance == Tolerance::elementwise ? kElementwise
                      : tolerance == Tolerance::sum       ? kSum
                                                          : kFused;
  switch (dtype) {
    case DType::bf16: return row.bf16;
    case DType::f16: return row.f16;
    case DType::f64: return row.f64;
    default: return row.f32;
  }
}

std::string first_unequal_byte(const HostTensor& got, const HostTensor& expected) {
  for (int64_t i = 0; i < got.size(); ++i) {
    const auto size = static_cast<size_t>(dtype_size(got.type.dtype));
    const size_t at = static_cast<size_t>(i) * size;
    for (size_t j = 0; j < size; ++j) {
      if (got.bytes[at + j] == expected.bytes[at + j]) continue;
      return fmt::format("element {}: got {:.9g}, expected exactly {:.9g}", i, got.get(i),
                         expected.get(i));
    }
  }
  return "";
}

}  // namespace

std::string difference(const HostTensor& got, const HostTensor& expected, Tolerance tolerance,
                       DType compute) {
  if (got.type != expected.type) return "types differ";
  const bool integer = got.present() && !is_floating(got.type.dtype);
  if (tolerance == Tolerance::exact || integer) return first_unequal_byte(got, expected);

  // A wide output of a fused kernel is no better than its narrow intermediate values.
  const Bound bound = bound_of(tolerance, tolerance == Tolerance::fused ? compute : got.type.dtype);
  double squares = 0;
  for (int64_t i = 0; i < expected.size(); ++i) squares += expected.get(i) * expected.get(i);
  const double rms =
      expected.size() == 0 ? 0 : std::sqrt(squares / static_cast<double>(expected.size()));
  double error = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double g = got.get(i), e = expected.get(i);
    if (!std::isfinite(e) || !std::isfinite(g)) {
      if (g == e || (std::isnan(g) && std::isnan(e))) continue;
      return fmt::format("element {} of {}: got {}, expected {}", i, got.size(), g, e);
    }
    if (std::abs(g - e) > bound.relative * (std::abs(e) + rms)) {
      return fmt::format("element {} of {}: got {:.9g}, expected {:.9g} within {:.3g} of {:.3g}", i,
                         got.size(), g, e, bound.relative, std::abs(e) + rms);
    }
    error += (g - e) * (g - e);
  }
  if (got.size() >= kAveraged && error > bound.nmse * squares) {
    return fmt::format("error {:.3g} of the mean square, expected at most {:.3g}", error / squares,
                       bound.nmse);
  }
  return "";
}

}  // namespace weft::test
