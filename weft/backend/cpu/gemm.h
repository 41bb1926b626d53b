// Matrix products of the cpu backend: C[m, n] = A . B (+ bias) (+ addend), row-major with leading
// dims, operands f32, bf16 or f16, sums in f32.
//
// Three implementations, chosen per shape when a Gemm is made: weft's own packed kernels (f32,
// which converts 16-bit operands while packing, and bf16 on AMX tiles) and oneDNN (AVX512_BF16
// without AMX). docs/benchmarks.md has the measurements behind the choice. Results of weft's
// kernels do not depend on the number of threads; oneDNN may split k among the threads.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/base/dtype.h"

namespace weft::cpu {

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool trans_a = false;               // A is stored [k, m]
  bool trans_b = false;               // B is stored [n, k]
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements between stored rows
  bool bias = false;                  // f32 [n] is added to every row
  bool addend = false;  // [m, n], dtype and leading dim of C, is added before rounding
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Exact scratch bytes; the workspace must be 64-byte aligned.
  virtual int64_t workspace_bytes() const = 0;
  /// `addend` may be the memory of C. Runs on a team of the threads given to make_gemm.
  virtual void run(const void* a, const void* b, void* c, const float* bias, const void* addend,
                   void* workspace) const = 0;
};

enum class GemmKind { automatic, packed, onednn, amx };

/// BugError for unsupported dtypes or, with GemmKind::onednn, when oneDNN has no such matmul here.
/// GemmKind::amx needs has_amx().
std::unique_ptr<Gemm> make_gemm(const GemmSpec& spec, int threads,
                                GemmKind kind = GemmKind::automatic);

std::unique_ptr<Gemm> make_packed_gemm(const GemmSpec& spec, int threads);
/// The CPU multiplies bf16 directly (AVX512_BF16 or AMX).
bool has_bf16_dot_products();
/// nullptr when oneDNN has no such matmul on this CPU.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmSpec& spec, int threads);

}  // namespace weft::cpu
