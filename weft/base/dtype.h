// Element types and their conversions. Names in text files are those of Dtype below, except in
// safetensors headers, which use the format's own upper-case names.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace weft {

enum class DType : uint8_t { none, f64, f32, bf16, f16, i64, i32, u16, u8 };

/// Bytes of one element; 0 for DType::none.
int64_t dtype_size(DType dtype);
/// "f32", "bf16", …
std::string_view dtype_name(DType dtype);
/// Inverse of dtype_name; also takes "fp32", "fp16", "fp64", "float32", "bfloat16", "float16".
std::optional<DType> parse_dtype(std::string_view text);
/// Name in a safetensors header ("F32", "BF16", …).
std::string_view safetensors_dtype_name(DType dtype);
std::optional<DType> parse_safetensors_dtype(std::string_view text);
bool is_floating(DType dtype);

/// bfloat16 storage. Conversion from float rounds to nearest even and keeps NaN quiet.
struct BF16 {
  uint16_t bits = 0;
};
/// IEEE binary16 storage. Conversion from float rounds to nearest even; overflow gives infinity.
struct F16 {
  uint16_t bits = 0;
};

inline float to_float(BF16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
inline BF16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
float to_float(F16 value);
F16 to_f16(float value);

/// Reads element `index` of an array of a floating dtype as double.
double load_element(const void* data, DType dtype, int64_t index);
/// Writes element `index` of an array of a floating dtype, rounding to nearest even.
void store_element(void* data, DType dtype, int64_t index, double value);
/// Converts `count` elements between floating dtypes (same dtype copies bytes).
void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count);

}  // namespace weft
