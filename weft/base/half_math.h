// Conversions between float and binary16 without branches, inline, so that loops over them become
// vector code on CPUs that have no instruction for it. The values of to_float(F16) and to_f16.
#pragma once

#include "weft/base/dtype.h"

namespace weft {

inline float half_to_float(F16 value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{value.bits & 0x7fffu} << 13;
  // As a float the exponent is too small by 112; the product is exact, subnormals included.
  const float finite = std::bit_cast<float>(rest) * 0x1p112f;
  const uint32_t special = rest | 0x7f800000u;
  const uint32_t bits = rest >= 0x0f800000u ? special : std::bit_cast<uint32_t>(finite);
  return std::bit_cast<float>(bits | sign);
}

inline F16 float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Subnormal halves are units of 2^-24: adding 0.5 leaves them, rounded, in the low bits.
  const float small = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(small) - 0x3f000000u;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace weft
