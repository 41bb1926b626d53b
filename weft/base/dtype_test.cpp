#include "weft/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
float f16(uint16_t bits) { return to_float(F16{bits}); }
uint16_t f16_bits(float value) { return to_f16(value).bits; }
uint16_t bf16_bits(float value) { return to_bf16(value).bits; }

TEST(DType, NamesRoundTripAndAliases) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::u16, DType::u8}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_safetensors_dtype(safetensors_dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("float16"), DType::f16);
  EXPECT_EQ(parse_dtype("fp32"), DType::f32);
  EXPECT_EQ(parse_dtype("F32"), std::nullopt);
  EXPECT_EQ(parse_safetensors_dtype("f32"), std::nullopt);
  EXPECT_EQ(parse_safetensors_dtype(""), std::nullopt);
  EXPECT_EQ(dtype_size(DType::none), 0);
  EXPECT_EQ(dtype_size(DType::bf16), 2);
  EXPECT_EQ(dtype_size(DType::f64), 8);
}

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(bf16_bits(1.0f), 0x3f80);
  EXPECT_EQ(bf16_bits(from_bits(0x3f808000)), 0x3f80);  // tie, even below
  EXPECT_EQ(bf16_bits(from_bits(0x3f818000)), 0x3f82);  // tie, even above
  EXPECT_EQ(bf16_bits(from_bits(0x3f808001)), 0x3f81);
  EXPECT_EQ(bf16_bits(from_bits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(bf16_bits(-0.0f), 0x8000);
}

TEST(BF16, SubnormalsOverflowAndNan) {
  EXPECT_EQ(bf16_bits(from_bits(0x00018000)), 0x0002);  // subnormal tie to even
  EXPECT_EQ(to_float(BF16{0x0001}), from_bits(0x00010000));
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  EXPECT_EQ(bf16_bits(from_bits(0x7f7f7fff)), 0x7f7f);
  EXPECT_EQ(bf16_bits(kInf), 0x7f80);
  EXPECT_EQ(bf16_bits(-kInf), 0xff80);
  // A NaN whose payload is in the lost bits must not become an infinity.
  EXPECT_TRUE(std::isnan(to_float(to_bf16(from_bits(0x7f800001)))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(from_bits(0xffffffff)))));
  EXPECT_EQ(bf16_bits(from_bits(0xff800001)) & 0x8000, 0x8000);
}

TEST(BF16, EveryValueRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = to_float(BF16{static_cast<uint16_t>(bits)});
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(to_bf16(value)))) << bits;
    } else {
      ASSERT_EQ(bf16_bits(value), bits);
    }
  }
}

TEST(F16, KnownValues) {
  EXPECT_EQ(f16(0x3c00), 1.0f);
  EXPECT_EQ(f16(0x0001), 0x1p-24f);  // least subnormal
  EXPECT_EQ(f16(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(f16(0x0400), 0x1p-14f);  // least normal
  EXPECT_EQ(f16(0x7bff), 65504.0f);
  EXPECT_EQ(f16(0xfc00), -kInf);
  EXPECT_TRUE(std::signbit(f16(0x8000)));
  EXPECT_TRUE(std::isnan(f16(0x7e00)));
}

TEST(F16, EveryValueRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = f16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(to_f16(value)))) << bits;
    } else {
      ASSERT_EQ(f16_bits(value), bits);
    }
  }
}

// Between each pair of neighbours: the midpoint goes to the even one, anything nearer to the
// nearer.
TEST(F16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const float a = f16(low);
    const float b = f16(static_cast<uint16_t>(low + 1));
    const float middle = a + (b - a) / 2;  // exact in fp32
    const uint16_t even = (low & 1) == 0 ? low : static_cast<uint16_t>(low + 1);
    ASSERT_EQ(f16_bits(middle), even) << low;
    ASSERT_EQ(f16_bits(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(f16_bits(std::nextafter(middle, kInf)), low + 1);
    ASSERT_EQ(f16_bits(-middle), even | 0x8000);
  }
}

TEST(F16, OverflowUnderflowAndNan) {
  EXPECT_EQ(f16_bits(65519.996f), 0x7bff);
  EXPECT_EQ(f16_bits(65520.0f), 0x7c00);  // the tie above the largest goes to infinity
  EXPECT_EQ(f16_bits(-1e30f), 0xfc00);
  EXPECT_EQ(f16_bits(0x1p-25f), 0x0000);  // half the least subnormal: tie to zero
  EXPECT_EQ(f16_bits(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f16_bits(from_bits(0x80000001)), 0x8000);
  EXPECT_TRUE(std::isnan(f16(f16_bits(kNan))));
  EXPECT_TRUE(std::isnan(f16(f16_bits(from_bits(0x7f800001)))));
}

TEST(Elements, ConvertsBetweenFloatingTypes) {
  const std::vector<float> values = {1.0f, -2.5f, 0x1p-24f, 3.14159f};
  std::vector<BF16> narrow(values.size());
  convert_elements(values.data(), DType::f32, narrow.data(), DType::bf16, 4);
  std::vector<double> wide(values.size());
  convert_elements(narrow.data(), DType::bf16, wide.data(), DType::f64, 4);
  EXPECT_EQ(wide[0], 1.0);
  EXPECT_EQ(wide[1], -2.5);
  EXPECT_EQ(wide[3], 3.140625);
  F16 half;
  store_element(&half, DType::f16, 0, 0.1);
  EXPECT_EQ(half.bits, 0x2e66);
  EXPECT_EQ(load_element(&half, DType::f16, 0), 0x1.998p-4);
}

TEST(Elements, IntegersAreNoFloatingTypes) {
  int32_t value = 0;
  EXPECT_THROW(load_element(&value, DType::i32, 0), BugError);
  EXPECT_THROW(store_element(&value, DType::i32, 0, 1.0), BugError);
  EXPECT_FALSE(is_floating(DType::i64));
  EXPECT_TRUE(is_floating(DType::f16));
}

}  // namespace
}  // namespace weft
