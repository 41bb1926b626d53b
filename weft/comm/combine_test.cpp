// The arithmetic and the geometry that all communicators share.
#include "weft/comm/combine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/region.h"

namespace weft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
T combined(DType dtype, Reduction reduction, const std::vector<T>& values) {
  std::vector<const std::byte*> sources;
  for (const T& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  T result{};
  combine(dtype, reduction, sources, reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

float sum(const std::vector<float>& values) { return combined(DType::f32, Reduction::sum, values); }
float lse(const std::vector<float>& values) {
  return combined(DType::f32, Reduction::logsumexp, values);
}
template <class T>
uint16_t half_sum(DType dtype, std::vector<uint16_t> bits) {
  std::vector<T> values;
  for (const uint16_t b : bits) values.push_back({b});
  return combined(dtype, Reduction::sum, values).bits;
}

TEST(Combine, AddsInTheOrderOfTheMembers) {
  EXPECT_EQ(sum({1e8f, 1.0f, -1e8f}), 0.0f);
  EXPECT_EQ(sum({1e8f, -1e8f, 1.0f}), 1.0f);
  EXPECT_EQ(sum({0.1f, 0.2f, 0.3f}), (0.1f + 0.2f) + 0.3f);
  EXPECT_EQ(sum({5.0f}), 5.0f);
  EXPECT_EQ(combined<double>(DType::f64, Reduction::sum, {1e16, 1.0, 1.0}), 1e16);
  EXPECT_EQ(combined<double>(DType::f64, Reduction::sum, {1.0, 1.0, 1e16}), 1e16 + 2);
}

TEST(Combine, IntegersWrapAround) {
  EXPECT_EQ(combined<int32_t>(DType::i32, Reduction::sum, {2147483647, 1, 5}), -2147483643);
  EXPECT_EQ(combined<int64_t>(DType::i64, Reduction::sum, {1LL << 62, 5, -6}), (1LL << 62) - 1);
}

TEST(Combine, HalvesAreRoundedOnce) {
  // 256 + 1 + 1 in bf16: 1 alone is lost in each step, 2 is not.
  EXPECT_EQ(half_sum<BF16>(DType::bf16, {0x4380, 0x3f80, 0x3f80}), 0x4381);
  // 2048 + 1 + 1 in f16.
  EXPECT_EQ(half_sum<F16>(DType::f16, {0x6800, 0x3c00, 0x3c00}), 0x6801);
  // Above the range of f16 in between, within it at the end.
  EXPECT_EQ(half_sum<F16>(DType::f16, {0x7bff, 0x7bff, 0xfbff}), 0x7bff);
  EXPECT_EQ(half_sum<F16>(DType::f16, {0x7bff, 0x7bff}), 0x7c00);
}

TEST(Combine, HalfConversionsAreThoseOfTheLibrary) {
  // Alone, every half comes back; NaN stays a NaN.
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((bits & 0x7fffu) > 0x7c00u) {
      EXPECT_GT(half_sum<F16>(DType::f16, {half}) & 0x7fff, 0x7c00);
    } else {
      ASSERT_EQ(half_sum<F16>(DType::f16, {half}), half);
    }
  }
  // Sums of two are rounded like to_f16.
  uint32_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    state = state * 1664525u + 1013904223u;
    const F16 a{static_cast<uint16_t>(state >> 16)};
    const F16 b{static_cast<uint16_t>(state >> 3 & 0x9fffu)};
    const F16 expected = to_f16(to_float(a) + to_float(b));
    if (std::isnan(to_float(expected))) continue;
    ASSERT_EQ(half_sum<F16>(DType::f16, {a.bits, b.bits}), expected.bits)
        << a.bits << " " << b.bits;
  }
}

TEST(Combine, LogSumExpTakesMinusInfinityAsNothing) {
  EXPECT_EQ(lse({-kInf, 3.0f, -kInf}), 3.0f);
  EXPECT_EQ(lse({-kInf, -kInf}), -kInf);
  EXPECT_EQ(lse({0.0f, 0.0f}), static_cast<float>(std::log(2.0)));
  EXPECT_EQ(lse({1000.0f, 1000.0f, 1000.0f}), static_cast<float>(1000.0 + std::log(3.0)));
  EXPECT_EQ(lse({-1e30f, 7.5f}), 7.5f);
  EXPECT_EQ(lse({kInf, 1.0f}), kInf);
  EXPECT_TRUE(std::isnan(lse({std::nanf(""), -kInf})));
  EXPECT_TRUE(std::isnan(lse({1.0f, std::nanf(""), 2.0f})));
}

TEST(Combine, ResultMayReplaceOneOfItsSources) {
  std::vector<float> a(5000), b(5000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f;
  }
  const std::byte* sources[] = {reinterpret_cast<std::byte*>(a.data()),
                                reinterpret_cast<std::byte*>(b.data())};
  combine(DType::f32, Reduction::sum, sources, reinterpret_cast<std::byte*>(b.data()), 5000);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(b[i], static_cast<float>(i) + 0.5f);
}

TEST(Combine, RefusesOtherTypes) {
  EXPECT_FALSE(can_combine(DType::bf16, Reduction::logsumexp));
  EXPECT_FALSE(can_combine(DType::u8, Reduction::sum));
  EXPECT_THROW(combined<uint8_t>(DType::u8, Reduction::sum, {1, 2}), BugError);
}

TEST(Region, AdjacentLoopsBecomeOneRun) {
  // The whole is one run.
  EXPECT_TRUE(block_region(2, 3, {0, 3}, 4, 5, {0, 5}, 6).contiguous());
  EXPECT_EQ(block_region(2, 3, {0, 3}, 4, 5, {0, 5}, 6).run, 720);
  // A cut of the first dim too, a cut of the second leaves one loop.
  const Region first = block_region(1, 3, {1, 2}, 1, 5, {0, 5}, 1);
  EXPECT_TRUE(first.contiguous());
  EXPECT_EQ(first.offset, 5);
  EXPECT_EQ(first.run, 10);
  const Region second = block_region(2, 3, {1, 1}, 1, 5, {0, 5}, 1);
  EXPECT_EQ(second.count[0], 2);
  EXPECT_EQ(second.stride[0], 15);
  EXPECT_EQ(second.run, 5);
  EXPECT_EQ(block_region(2, 3, {3, 0}, 1, 5, {0, 5}, 1).elements(), 0);
}

TEST(Region, CursorVisitsTheElementsFromAnyPosition) {
  const Region region = block_region(2, 4, {1, 2}, 3, 5, {2, 2}, 2);
  std::vector<int64_t> expected;
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t x = 1; x < 3; ++x) {
      for (int64_t b = 0; b < 3; ++b) {
        for (int64_t y = 2; y < 4; ++y) {
          for (int64_t c = 0; c < 2; ++c) {
            expected.push_back((((a * 4 + x) * 3 + b) * 5 + y) * 2 + c);
          }
        }
      }
    }
  }
  ASSERT_EQ(region.elements(), static_cast<int64_t>(expected.size()));
  for (int64_t start = 0; start <= region.elements(); ++start) {
    RegionCursor cursor(region, start);
    for (int64_t i = start; i < region.elements(); ++i) {
      ASSERT_EQ(cursor.offset(), expected[static_cast<size_t>(i)]) << start;
      cursor.advance(1);
    }
    EXPECT_EQ(cursor.left(), 0);
  }
}

}  // namespace
}  // namespace weft
