// Errors, checks and shapes.
#include <gtest/gtest.h>

#include <limits>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/shape.h"

namespace weft {
namespace {

TEST(Error, TextNamesWhereAndCodeFollowsTheType) {
  EXPECT_STREQ(UsageError("train", "got 1, expected 2").what(), "[train] got 1, expected 2");
  EXPECT_EQ(UsageError("", "").code(), ExitCode::usage);
  EXPECT_EQ(InputError("", "").code(), ExitCode::input);
  EXPECT_EQ(ResourceError("", "").code(), ExitCode::resource);
  EXPECT_EQ(AlarmError("", "").code(), ExitCode::alarm);
  EXPECT_EQ(PeerError("", "").code(), ExitCode::peer);
  EXPECT_EQ(BugError("", "").code(), ExitCode::bug);
  EXPECT_EQ(static_cast<int>(Interrupted("", "").code()), 75);
  EXPECT_FALSE(errno_text(2).empty());
}

TEST(Check, ThrowsBugErrorWithTheText) {
  EXPECT_NO_THROW(WEFT_CHECK(true, "x", "never"));
  try {
    WEFT_CHECK(1 > 2, "arena", "got {} bytes", 7);
    FAIL() << "a false check passed";
  } catch (const BugError& error) {
    EXPECT_STREQ(error.what(), "[arena] got 7 bytes");
  }
}

TEST(Check, NarrowKeepsTheValueOrThrows) {
  EXPECT_EQ((narrow<int32_t>(int64_t{-5})), -5);
  EXPECT_THROW((narrow<int32_t>(int64_t{1} << 31)), BugError);
  EXPECT_THROW((narrow<uint32_t>(int64_t{-1})), BugError);
  EXPECT_THROW((narrow<int64_t>(std::numeric_limits<uint64_t>::max())), BugError);
}

TEST(Check, ExactDivisionAndRounding) {
  EXPECT_EQ(div_exact(12, 4), 3);
  EXPECT_THROW(div_exact(13, 4), BugError);
  EXPECT_THROW(div_exact(1, 0), BugError);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(0, 64), 0);
}

TEST(Shape, CountsElementsAndRows) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
  EXPECT_EQ(num_elements({5, 0, 7}), 0);
  EXPECT_EQ(num_rows({2, 3, 4}), 6);
  EXPECT_EQ(num_rows({4}), 1);
  EXPECT_EQ(num_rows({}), 1);
  EXPECT_EQ(shape_text({2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text({}), "[]");
}

TEST(Shape, OverflowAndNegativeExtentsThrow) {
  EXPECT_EQ(num_elements({int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
  EXPECT_THROW(num_elements({int64_t{1} << 32, int64_t{1} << 31}), BugError);
  EXPECT_THROW(num_elements({int64_t{1} << 32, int64_t{1} << 32}), BugError);
  EXPECT_THROW(num_elements({2, -1}), BugError);
}

}  // namespace
}  // namespace weft
