#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "weft/base/rng.h"

namespace weft {
namespace {

TEST(Normal, AgreesWithTheFormulaInLibm) {
  const RngStream stream(11, "normal");
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(stream.key()),
                                    static_cast<uint32_t>(stream.key() >> 32)};
  for (uint32_t i = 0; i < 100'000; ++i) {
    const PhiloxBlock block = philox4x32({i, 0, 0, 0}, key);
    const double radius = static_cast<double>((uint64_t{block[0]} << 21) | (block[1] >> 11)) + 1.0;
    const double angle = static_cast<double>((uint64_t{block[2]} << 21) | (block[3] >> 11));
    const double expected = std::sqrt(-2.0 * std::log(radius * 0x1p-53)) *
                            std::cos(2.0 * std::numbers::pi * angle * 0x1p-53);
    ASSERT_NEAR(stream.normal(i), expected, 1e-14) << i;
  }
}

TEST(Normal, ManyAtOnceAreTheSameBits) {
  const RngStream stream(11, "normal");
  for (const uint64_t first : {uint64_t{0}, uint64_t{17}, (uint64_t{1} << 32) - 70}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{200}}) {
      std::vector<double> drawn(static_cast<size_t>(count) + 1, -7.0);
      stream.normals(first, count, drawn.data());
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(drawn[static_cast<size_t>(i)], stream.normal(first + static_cast<uint64_t>(i)));
      }
      EXPECT_EQ(drawn.back(), -7.0);
    }
  }
}

}  // namespace
}  // namespace weft
