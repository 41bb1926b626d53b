// Tables of loops by the floating dtype of their operands, and what the loops need of an element.
#pragma once

#include <cstdint>

#include "weft/base/check.h"
#include "weft/base/half_math.h"

namespace weft::cpu {

inline constexpr int kFloats = 3;  // f32, bf16, f16, in this order

inline bool has_float_index(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
/// Place of a dtype in tables of kFloats entries.
inline int float_index(DType dtype) {
  WEFT_CHECK(has_float_index(dtype), "cpu", "no loops for {}", dtype_name(dtype));
  return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2;
}

/// Table of a function template over the element type, which is its first argument.
#define WEFT_PER_FLOAT(name) \
  { &name<float>, &name<BF16>, &name<F16> }
/// The same for a template with more arguments.
#define WEFT_PER_FLOAT_WITH(name, ...) \
  { &name<float, __VA_ARGS__>, &name<BF16, __VA_ARGS__>, &name<F16, __VA_ARGS__> }

inline float as_float(float value) { return value; }
inline float as_float(BF16 value) { return to_float(value); }
inline float as_float(F16 value) { return half_to_float(value); }

inline void assign(float& to, float value) { to = value; }
inline void assign(BF16& to, float value) { to = to_bf16(value); }
inline void assign(F16& to, float value) { to = float_to_half(value); }

}  // namespace weft::cpu
