#include "weft/backend/cpu/amx.h"

#include "weft/backend/cpu/gemm_packed.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)
bool granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kOsXsave = 1u << 27;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512Bf16) == 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  // The tile registers are 8 KB that the system saves only for processes that ask for them.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool granted() { return false; }
#endif

}  // namespace

bool has_amx() {
  static const bool known = gemm_isa().avx512 && granted();
  return known;
}

}  // namespace weft::cpu
