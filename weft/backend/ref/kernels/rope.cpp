// rope_table and rope. Angles are computed in double whatever the compute dtype.
#include <cmath>
#include <numbers>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

/// Angle per position of frequency pair `i` of D / 2.
double inverse_frequency(const Attrs& attrs, int64_t i, int64_t D) {
  const double frequency =
      std::pow(attrs.get_double("theta"), -2.0 * static_cast<double>(i) / static_cast<double>(D));
  const std::string type = attrs.get_string("type", "default");
  if (type == "default") return frequency;
  const double factor = attrs.get_double("factor");
  if (type == "linear") return frequency / factor;
  WEFT_CHECK(type == "llama3", "ref.rope_table", "unknown type {}", type);
  const double low = attrs.get_double("low_freq_factor");
  const double high = attrs.get_double("high_freq_factor");
  const auto original = attrs.get_double("original_max_position");
  const double turns = original * frequency / (2.0 * std::numbers::pi);  // within the old context
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const double smooth = (turns - low) / (high - low);
  return (1.0 - smooth) * frequency / factor + smooth * frequency;
}

// table[t] = D/2 cosines, then D/2 sines of position[t] * frequency
void rope_table(const Call& call) {
  const int32_t* positions = call.data<int32_t>(0);
  const Out table = call.out(0);
  const int64_t D = call.attrs().get_int("head_dim");
  for (int64_t i = 0; i < D / 2; ++i) {
    const double frequency = inverse_frequency(call.attrs(), i, D);
    for (int64_t t = 0; t < call.elements(0); ++t) {
      const double angle = static_cast<double>(positions[t]) * frequency;
      table.set(t * D + i, std::cos(angle));
      table.set(t * D + D / 2 + i, std::sin(angle));
    }
  }
}

// Per head the halves (a, b) become (a cos - b sin, b cos + a sin).
void rope(const Call& call) {
  const In x = call.in(0), table = call.in(1);
  const Out y = call.out(0);
  const int64_t D = call.attrs().get_int("head_dim");
  const double direction = call.attrs().get_bool("inverse", false) ? -1.0 : 1.0;
  const int64_t tokens = num_rows(call.shape(0)), heads = call.shape(0).back() / D;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t i = 0; i < D / 2; ++i) {
        const int64_t at_a = (t * heads + n) * D + i, at_b = at_a + D / 2;
        const double cosine = table[t * D + i];
        const double sine = direction * table[t * D + D / 2 + i];
        const double a = x[at_a], b = x[at_b];
        y.set(at_a, a * cosine - b * sine);
        y.set(at_b, b * cosine + a * sine);
      }
    }
  }
}

}  // namespace

RefKernel rope_table_kernel() { return {&rope_table}; }
RefKernel rope_kernel() { return {&rope}; }

}  // namespace weft::ref
