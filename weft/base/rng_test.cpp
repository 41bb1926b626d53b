#include "weft/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace weft {
namespace {

// Known answers of the Random123 library for philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(HashName, IsFnv1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

TEST(RngStream, IsAFunctionOfSeedNameAndIndex) {
  const RngStream a(7, "model.layers.0.mlp.up_proj.weight");
  const RngStream b(7, "model.layers.0.mlp.up_proj.weight");
  const RngStream other_name(7, "model.layers.1.mlp.up_proj.weight");
  const RngStream other_seed(8, "model.layers.0.mlp.up_proj.weight");
  EXPECT_NE(a.key(), other_name.key());
  EXPECT_NE(a.key(), other_seed.key());
  // Any order of access gives the same numbers.
  for (const uint64_t index : {uint64_t{1000}, uint64_t{0}, uint64_t{1} << 40, uint64_t{3}}) {
    EXPECT_EQ(a.bits(index), b.bits(index));
    EXPECT_EQ(a.normal(index), b.normal(index));
    EXPECT_NE(a.bits(index), a.bits(index, 1));
  }
  EXPECT_EQ(RngStream(a.key()).bits(5), a.bits(5));
}

TEST(RngStream, HighIndexBitsCount) {
  const RngStream stream(1, "x");
  EXPECT_NE(stream.bits(5), stream.bits(5 + (uint64_t{1} << 32)));
}

TEST(RngStream, UniformAndNormalHaveTheirMoments) {
  const RngStream stream(3, "moments");
  constexpr int kDraws = 200000;
  double sum = 0, sum_normal = 0, square_normal = 0, fourth_normal = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    const double z = stream.normal(i);
    ASSERT_TRUE(std::isfinite(z));
    sum_normal += z;
    square_normal += z * z;
    fourth_normal += z * z * z * z;
  }
  // Five standard errors each; the draws are fixed, so this never varies.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(sum_normal / kDraws, 0.0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(square_normal / kDraws, 1.0, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourth_normal / kDraws, 3.0, 5 * std::sqrt(96.0 / kDraws));
}

TEST(RngStream, BelowStaysBelowAndReachesAll) {
  const RngStream stream(3, "below");
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 500; ++i) {
    const uint64_t value = stream.below(i, 7);
    ASSERT_LT(value, 7u);
    seen.insert(value);
    ASSERT_EQ(stream.below(i, 1), 0u);
    ASSERT_LT(stream.below(i, uint64_t{1} << 63), uint64_t{1} << 63);
  }
  EXPECT_EQ(seen.size(), 7u);
}

TEST(Dropout, KeysDifferBySeedStepAndSite) {
  const std::set<uint64_t> keys = {dropout_key(1, 1, 1), dropout_key(2, 1, 1), dropout_key(1, 2, 1),
                                   dropout_key(1, 1, 2), dropout_key(1, 2, 2)};
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(dropout_threshold(0.0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), 1u << 23);
  EXPECT_NE(dropout_block(5, 0, 1, 2), dropout_block(5, uint64_t{1} << 32, 1, 2));
}

}  // namespace
}  // namespace weft
