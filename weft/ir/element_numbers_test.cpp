#include "weft/ir/element_numbers.h"

#include <gtest/gtest.h>

#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

State piece(Shape whole, Shape begin, Shape extent, int64_t flat_begin = -1, int64_t size = 0) {
  State state;
  state.logical.shape = std::move(whole);
  state.logical.begin = std::move(begin);
  state.logical.flat_begin = flat_begin;
  state.type = {DType::bf16, extent};
  if (flat_begin >= 0) {
    state.logical.extent = std::move(extent);
    state.type.shape = {size};
  }
  return state;
}

/// Numbers of elements [begin, begin + count).
std::vector<int64_t> numbers(const ElementNumbers& of, int64_t begin, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count), -1);
  of.runs(begin, count, [&](int64_t offset, int64_t number, int64_t length) {
    for (int64_t i = 0; i < length; ++i) values[static_cast<size_t>(offset + i)] = number + i;
  });
  return values;
}

using Values = std::vector<int64_t>;

TEST(ElementNumbers, OfTheWhole) {
  const ElementNumbers whole(piece({3, 4}, {}, {3, 4}));
  EXPECT_EQ(numbers(whole, 0, 12), (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(numbers(whole, 5, 3), (Values{5, 6, 7}));
  int runs = 0;
  whole.runs(0, 12, [&](int64_t, int64_t, int64_t) { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(ElementNumbers, OfARectangle) {
  const ElementNumbers columns(piece({3, 4}, {0, 2}, {3, 2}));
  EXPECT_EQ(numbers(columns, 0, 6), (Values{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(numbers(columns, 3, 3), (Values{7, 10, 11}));
  EXPECT_EQ(numbers(ElementNumbers(piece({3, 4}, {1, 0}, {2, 4})), 1, 6),
            (Values{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(numbers(ElementNumbers(piece({2, 3, 4}, {0, 1, 2}, {2, 1, 2})), 0, 4),
            (Values{6, 7, 18, 19}));
}

TEST(ElementNumbers, OfARangeOfARectangle) {
  EXPECT_EQ(numbers(ElementNumbers(piece({3, 4}, {0, 2}, {3, 2}, 1, 4)), 0, 4),
            (Values{3, 6, 7, 10}));
  EXPECT_EQ(numbers(ElementNumbers(piece({3, 4}, {0, 0}, {3, 4}, 5, 7)), 2, 3), (Values{7, 8, 9}));
  EXPECT_EQ(numbers(ElementNumbers(piece({3, 4}, {0, 0}, {3, 4}, 12, 0)), 0, 0), Values{});
  EXPECT_EQ(numbers(ElementNumbers(piece({3, 4}, {0, 0}, {0, 4})), 0, 0), Values{});
}

TEST(ElementNumbers, TravelAsText) {
  const ElementNumbers of(piece({3, 4}, {0, 2}, {3, 2}, 1, 4));
  EXPECT_EQ(of.text(), "3,4;0,2;3,2;1");
  EXPECT_EQ(numbers(ElementNumbers(of.text()), 0, 4), (Values{3, 6, 7, 10}));
  EXPECT_THROW(ElementNumbers("3,4;0,2;3;1"), BugError);
  EXPECT_THROW(ElementNumbers("3,x;0,2;3,2;1"), BugError);
  EXPECT_THROW(ElementNumbers("3,4"), BugError);
}

}  // namespace
}  // namespace weft
