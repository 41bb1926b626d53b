// The second run of this test program (see CMakeLists.txt) uses the fallback for CPUs without AVX2.
#include <cstdlib>

#include "hwy/targets.h"
#include "weft/backend/cpu/gemm_packed.h"
#include "weft/backend/cpu/kernel_test_util.h"

namespace weft::cpu {

bool use_portable_kernels_if_asked() {
  const char* asked = std::getenv("WEFT_TEST_CPU_ISA");
  if (asked == nullptr || std::string_view(asked) != "portable") return false;
  hwy::DisableTargets(HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL);
  return true;
}

namespace {

TEST(CpuIsa, ThePortableRunUsesTheFallback) { EXPECT_EQ(kPortable, gemm_isa().tile_cols == 2); }

}  // namespace
}  // namespace weft::cpu
