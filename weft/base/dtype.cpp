#include "weft/base/dtype.h"

#include "weft/base/check.h"
#include "weft/base/half_math.h"

namespace weft {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t size;
  std::string_view name;
  std::string_view safetensors;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::none, 0, "none", ""},     {DType::f64, 8, "f64", "F64"}, {DType::f32, 4, "f32", "F32"},
    {DType::bf16, 2, "bf16", "BF16"}, {DType::f16, 2, "f16", "F16"}, {DType::i64, 8, "i64", "I64"},
    {DType::i32, 4, "i32", "I32"},    {DType::u16, 2, "u16", "U16"}, {DType::u8, 1, "u8", "U8"},
};

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  WEFT_CHECK(index < std::size(kDTypes), "dtype", "unknown dtype number {}", index);
  return kDTypes[index];
}

}  // namespace

int64_t dtype_size(DType dtype) { return info(dtype).size; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }
std::string_view safetensors_dtype_name(DType dtype) { return info(dtype).safetensors; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (const auto& entry : kDTypes) {
    if (entry.name == text) return entry.dtype;
  }
  if (text == "fp64" || text == "float64") return DType::f64;
  if (text == "fp32" || text == "float32") return DType::f32;
  if (text == "bfloat16") return DType::bf16;
  if (text == "fp16" || text == "float16") return DType::f16;
  return std::nullopt;
}

std::optional<DType> parse_safetensors_dtype(std::string_view text) {
  for (const auto& entry : kDTypes) {
    if (!text.empty() && entry.safetensors == text) return entry.dtype;
  }
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

float to_float(F16 value) { return half_to_float(value); }
F16 to_f16(float value) { return float_to_half(value); }

double load_element(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::f64: return static_cast<const double*>(data)[index];
    case DType::f32: return static_cast<const float*>(data)[index];
    case DType::bf16: return to_float(static_cast<const BF16*>(data)[index]);
    case DType::f16: return to_float(static_cast<const F16*>(data)[index]);
    default: break;
  }
  throw BugError("load_element", fmt::format("{} is not a floating dtype", dtype_name(dtype)));
}

void store_element(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::f64: static_cast<double*>(data)[index] = value; return;
    case DType::f32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::bf16: static_cast<BF16*>(data)[index] = to_bf16(static_cast<float>(value)); return;
    case DType::f16: static_cast<F16*>(data)[index] = to_f16(static_cast<float>(value)); return;
    default: break;
  }
  throw BugError("store_element", fmt::format("{} is not a floating dtype", dtype_name(dtype)));
}

void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(count * dtype_size(from_dtype)));
    return;
  }
  if (from_dtype == DType::f32 && to_dtype == DType::bf16) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<BF16*>(to)[i] = to_bf16(static_cast<const float*>(from)[i]);
    }
    return;
  }
  if (from_dtype == DType::bf16 && to_dtype == DType::f32) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<float*>(to)[i] = to_float(static_cast<const BF16*>(from)[i]);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    store_element(to, to_dtype, i, load_element(from, from_dtype, i));
  }
}

}  // namespace weft
