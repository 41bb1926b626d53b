#include "weft/base/raise.h"

#include <gtest/gtest.h>

#include <new>

namespace weft {
namespace {

template <class Thrown>
ErrorData text_of(const Thrown& thrown) {
  return error_data(std::make_exception_ptr(thrown));
}

TEST(Raise, KeepsTypeAndText) {
  const UsageError usage("a] b", "got x, expected y");
  try {
    raise(text_of(usage));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), usage.what());
  }
  EXPECT_THROW(raise(text_of(InputError("a", "b"))), InputError);
  EXPECT_THROW(raise(text_of(ResourceError("a", "b"))), ResourceError);
  EXPECT_THROW(raise(text_of(AlarmError("a", "b"))), AlarmError);
  EXPECT_THROW(raise(text_of(PeerError("a", "b"))), PeerError);
  EXPECT_THROW(raise(text_of(Interrupted("a", "b"))), Interrupted);
  EXPECT_THROW(raise(text_of(BugError("a", "b"))), BugError);
}

TEST(Raise, OtherExceptionsGetACode) {
  EXPECT_EQ(text_of(std::bad_alloc()).code, ExitCode::resource);
  EXPECT_EQ(text_of(std::runtime_error("odd")).code, ExitCode::bug);
  EXPECT_NE(text_of(std::runtime_error("odd")).text.find("odd"), std::string::npos);
  EXPECT_EQ(text_of(7).code, ExitCode::bug);
}

}  // namespace
}  // namespace weft
