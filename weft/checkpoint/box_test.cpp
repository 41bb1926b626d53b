#include "weft/checkpoint/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
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

/// Places in `shape`, counted row-major, of the elements of a box in its own order.
std::vector<int64_t> places(const Box& box, const Shape& shape) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < num_elements(box.extent); ++i) {
    int64_t rest = i;
    int64_t place = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      place += (box.begin[d] + rest % box.extent[d]) * stride;
      rest /= box.extent[d];
      stride *= shape[d];
    }
    result.push_back(place);
  }
  return result;
}

void expect_flat_boxes(const Box& box, const Shape& shape, int64_t begin, int64_t count) {
  const std::vector<int64_t> all = places(box, shape);
  std::vector<int64_t> joined;
  const std::vector<Box> boxes = flat_boxes(box, begin, count);
  for (const Box& piece : boxes) {
    EXPECT_GT(num_elements(piece.extent), 0);
    const std::vector<int64_t> more = places(piece, shape);
    joined.insert(joined.end(), more.begin(), more.end());
  }
  const std::vector<int64_t> expected(all.begin() + begin, all.begin() + begin + count);
  EXPECT_EQ(joined, expected) << shape_text(box.extent) << " " << begin << " + " << count;
  EXPECT_LE(boxes.size() + 1, std::max<size_t>(2, 2 * shape.size()));
  if (count == static_cast<int64_t>(all.size()) && count > 0) {
    EXPECT_EQ(boxes.size(), 1u);
  }
}

TEST(Box, EveryRangeOfSmallBoxesIsAFewBoxes) {
  expect_flat_boxes({}, {}, 0, 1);
  expect_flat_boxes({}, {}, 1, 0);
  for (int64_t code = 0; code < 4 * 4 * 4 * 3; ++code) {
    Box box;
    Shape shape;
    int64_t rest = code;
    for (int d = 0; d < 4; ++d, rest /= 4) {
      if (rest % 4 == 0) continue;  // a dim less
      box.begin.push_back(d % 2);
      box.extent.push_back(rest % 4);
      shape.push_back(rest % 4 + 1);
    }
    const int64_t elements = num_elements(box.extent);
    for (int64_t begin = 0; begin <= elements; ++begin) {
      for (int64_t count = 0; begin + count <= elements; ++count) {
        expect_flat_boxes(box, shape, begin, count);
      }
    }
  }
  EXPECT_TRUE(flat_boxes({{0, 2}, {3, 0}}, 0, 0).empty());
  EXPECT_THROW(flat_boxes({{0, 0}, {3, 2}}, 4, 3), BugError);
}

TEST(Box, CopiesOfRangesEqualCopiesOfTheirElements) {
  const RngStream rng(2, "range");
  uint64_t draw = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(rng.below(draw++, static_cast<uint64_t>(bound)));
  };
  for (int i = 0; i < 300; ++i) {
    Shape shape;
    Box from;
    Box to;
    for (int64_t d = below(5); d > 0; --d) {
      shape.push_back(5);
      from.begin.push_back(below(3));
      from.extent.push_back(1 + below(3));
      to.begin.push_back(below(3));
      to.extent.push_back(1 + below(3));
    }
    const int64_t elements = num_elements(from.extent);
    const int64_t begin = below(elements + 1);
    const int64_t count = below(elements - begin + 1);
    expect_flat_boxes(from, shape, begin, count);
    const std::vector<int64_t> have = places(from, shape);
    const std::vector<int64_t> want = places(to, shape);
    std::vector<int64_t> expected(want.size(), -1);
    int64_t common = 0;
    for (size_t k = 0; k < want.size(); ++k) {
      const auto found = std::find(have.begin() + begin, have.begin() + begin + count, want[k]);
      if (found == have.begin() + begin + count) continue;
      expected[k] = want[k];
      ++common;
    }
    std::vector<int64_t> target(want.size(), -1);
    EXPECT_EQ(copy_range(from, begin, count, have.data() + begin, to, target.data(), 8), common);
    EXPECT_EQ(target, expected);
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
