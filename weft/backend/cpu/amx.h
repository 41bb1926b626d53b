// The matrix unit of some x86 CPUs (Intel AMX): products of bf16 tiles with f32 sums. Everything
// here is chosen at run time; CPUs without it use the other kernels.
#pragma once

#include <memory>

#include "weft/backend/cpu/gemm.h"

namespace weft::cpu {

/// The CPU has AMX for bf16 and the system lets this process use it. False where the other kernels
/// do not use AVX-512, so that tests of the fallback see none of it.
bool has_amx();

/// bf16 x bf16 -> f32 or bf16. Requires has_amx() and m, n, k > 0.
std::unique_ptr<Gemm> make_amx_gemm(const GemmSpec& spec, int threads);

}  // namespace weft::cpu
