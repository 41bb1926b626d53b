#include <gtest/gtest.h>

#include <string>

#include "weft/backend/backend_entries.h"
#include "weft/base/error.h"

namespace weft {
namespace {

TEST(NoCuda, SaysThatItWasNotBuiltIn) {
  try {
    make_cuda_backend({});
    FAIL() << "nothing thrown";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("this build has no cuda"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
