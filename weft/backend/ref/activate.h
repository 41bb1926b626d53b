// Activations in double, with their slope.
#pragma once

#include <cmath>
#include <numbers>
#include <string_view>

#include "weft/base/check.h"

namespace weft::ref {

struct Point {
  double value;
  double slope;
};

inline Point activate(std::string_view kind, double x) {
  if (kind == "silu") {
    const double s = 1.0 / (1.0 + std::exp(-x));
    return {x * s, s * (1.0 + x * (1.0 - s))};
  }
  if (kind == "gelu") {
    const double cdf = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    return {x * cdf, cdf + x * density};
  }
  WEFT_CHECK(kind == "gelu_tanh", "ref.activation", "unknown kind {}", kind);
  const double scale = std::sqrt(2.0 / std::numbers::pi);
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  const double inner_slope = scale * (1.0 + 3.0 * 0.044715 * x * x);
  return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope};
}

}  // namespace weft::ref
