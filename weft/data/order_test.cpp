#include "weft/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/blend.h"

namespace weft {
namespace {

std::vector<int64_t> all_of(const Permutation& order, int64_t size) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(order.at(i));
  return values;
}

TEST(Permutation, VisitsEachElementOnce) {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    std::vector<int64_t> values = all_of(Permutation(RngStream(1, "a"), size), size);
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i) << size;
  }
}

TEST(Permutation, IsFixedBySeedAndName) {
  const auto values = [](uint64_t seed, const char* name) {
    return all_of(Permutation(RngStream(seed, name), 100), 100);
  };
  EXPECT_EQ(values(1, "data.order.0"), values(1, "data.order.0"));
  EXPECT_NE(values(1, "data.order.0"), values(1, "data.order.1"));
  EXPECT_NE(values(1, "data.order.0"), values(2, "data.order.0"));
  // The order of old runs must stay what it was.
  const std::vector<int64_t> first = all_of(Permutation(RngStream(1234, "data.order.0"), 8), 8);
  EXPECT_EQ(first, (std::vector<int64_t>{0, 4, 2, 5, 7, 3, 6, 1}));
}

TEST(Permutation, SmallOrdersAreSpreadEvenly) {
  // All 24 orders of 4 elements appear, none more than three times its share.
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kDraws = 4800;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    ++seen[all_of(Permutation(RngStream(seed, "a"), 4), 4)];
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_LT(count, 3 * kDraws / 24);
}

TEST(Permutation, LargeSizesNeedNoArray) {
  const int64_t size = int64_t{1} << 40;
  const Permutation order(RngStream(5, "a"), size + 3);
  std::set<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) values.insert(order.at(size - i));
  EXPECT_EQ(values.size(), 1000u);
  EXPECT_LT(*values.rbegin(), size + 3);
  EXPECT_THROW(order.at(size + 3), BugError);
}

TEST(Blend, B49_EachSourceStaysWithinOneOfItsShare) {
  const std::vector<std::vector<double>> cases = {
      {0.001, 0.999}, {0, 1}, {1, 1, 1}, {0.5, 0.25, 0.25}, {5, 3, 1, 1, 0.3, 0.01}, {0.29, 0.71}};
  for (const auto& weights : cases) {
    const std::vector<double> shares = normalize_weights(weights, weights.size());
    Blend blend(shares);
    for (int64_t n = 1; n <= 20000; ++n) {
      blend.at(n - 1);
      for (size_t i = 0; i < shares.size(); ++i) {
        ASSERT_LE(std::abs(static_cast<double>(blend.counts()[i]) - shares[i] * n), 1.0 + 1e-6)
            << "source " << i << " of " << shares.size() << " after " << n;
      }
    }
  }
}

TEST(Blend, AnyPositionGivesTheSamePick) {
  const std::vector<double> shares = normalize_weights(std::vector<double>{3, 2, 1}, 3);
  Blend forward(shares);
  std::vector<Blend::Pick> picks;
  for (int64_t n = 0; n < 60; ++n) picks.push_back(forward.at(n));
  Blend jumping(shares);
  for (const int64_t n : {59, 0, 30, 31, 7}) {
    const Blend::Pick pick = jumping.at(n);
    EXPECT_EQ(pick.source, picks[static_cast<size_t>(n)].source);
    EXPECT_EQ(pick.index, picks[static_cast<size_t>(n)].index);
  }
  EXPECT_EQ(forward.counts(), (std::vector<int64_t>{30, 20, 10}));
}

TEST(Blend, B49_WeightsThatCannotBeAreRefused) {
  const auto refused = [](std::vector<double> weights, size_t sources) {
    EXPECT_THROW(normalize_weights(weights, sources), UsageError);
  };
  refused({1, -1}, 2);
  refused({0, 0}, 2);
  refused({1}, 2);
  refused({1, NAN}, 2);
  refused({1, INFINITY}, 2);
  EXPECT_EQ(normalize_weights(std::vector<double>{98, 1, 1}, 3)[0], 0.98);
}

}  // namespace
}  // namespace weft
