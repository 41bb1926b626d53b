#include "weft/checkpoint/box.h"

#include <gtest/gtest.h>

#include <numeric>

#include "weft/base/rng.h"

namespace weft {
namespace {

/// Element by element: `to` filled from `from`, both pieces of one tensor.
void expect_copy(const Box& from, const Box& to) {
  const auto count = [](const Box& box) { return static_cast<size_t>(num_elements(box.extent)); };
  std::vector<int32_t> source(count(from));
  std::iota(source.begin(), source.end(), 1);
  std::vector<int32_t> target(count(to), -1);
  std::vector<int32_t> expected = target;
  int64_t common = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    Shape index(to.extent.size());
    for (size_t d = index.size(); d-- > 0;) {
      index[d] = to.begin[d] + rest % to.extent[d];
      rest /= to.extent[d];
    }
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t local = index[d] - from.begin[d];
      inside = inside && local >= 0 && local < from.extent[d];
      at = at * from.extent[d] + local;
    }
    if (!inside) continue;
    expected[i] = source[static_cast<size_t>(at)];
    ++common;
  }
  EXPECT_EQ(copy_overlap(from, source.data(), to, target.data(), 4), common);
  EXPECT_EQ(overlap_elements(from, to), common);
  EXPECT_EQ(target, expected);
}

TEST(Box, CopiesEqualTheDefinition) {
  const RngStream rng(1, "box");
  uint64_t draw = 0;
  const auto random_box = [&](size_t rank) {
    Box box;
    for (size_t d = 0; d < rank; ++d) {
      box.begin.push_back(static_cast<int64_t>(rng.below(draw++, 3)));
      box.extent.push_back(static_cast<int64_t>(1 + rng.below(draw++, 4)));
    }
    return box;
  };
  for (int i = 0; i < 400; ++i) {
    const size_t rank = rng.below(draw++, 5);
    expect_copy(random_box(rank), random_box(rank));
  }
}

TEST(Box, CoverMeansDisjointAndComplete) {
  const Box left{{0, 0}, {4, 3}};
  const Box right{{0, 3}, {4, 3}};
  const Box wide{{0, 2}, {4, 3}};
  const Box top{{0, 0}, {2, 6}};
  const Box bottom{{2, 0}, {2, 6}};
  const Shape shape = {4, 6};
  EXPECT_TRUE(boxes_cover({&left, &right}, shape));
  EXPECT_TRUE(boxes_cover({&bottom, &top}, shape));
  EXPECT_FALSE(boxes_cover({&left, &wide}, shape));
  EXPECT_FALSE(boxes_cover({&left, &left}, shape));
  EXPECT_FALSE(boxes_cover({&left}, shape));
  EXPECT_FALSE(boxes_cover({&top, &right}, shape));
  EXPECT_FALSE(boxes_cover({&left, &right}, {4, 5}));
  const Box scalar;
  EXPECT_TRUE(boxes_cover({&scalar}, {}));
  EXPECT_FALSE(boxes_cover({&scalar, &scalar}, {}));
  EXPECT_TRUE(boxes_cover({}, {0, 3}));
}

}  // namespace
}  // namespace weft
