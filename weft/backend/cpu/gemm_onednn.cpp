// Matmuls by oneDNN, used where the CPU has bf16 dot-product instructions. The only source that
// sees oneDNN. Scratch memory is the caller's (user scratchpad), so nothing is allocated at run
// time, and no weights are reordered.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "weft/backend/cpu/gemm.h"
#include "weft/backend/cpu/gemm_packed.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

/// oneDNN takes the team size from the calling thread's OpenMP setting; keep ours for one scope.
class TeamScope {
 public:
  explicit TeamScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamScope() { omp_set_num_threads(before_); }
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int before_;
};

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A stored [rows, cols] matrix, or its transpose.
dnnl::memory::desc matrix(int64_t rows, int64_t cols, DType dtype, int64_t ld, bool trans) {
  const dnnl::memory::dims strides = trans ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {{rows, cols}, data_type(dtype), strides};
}

class OneDnnGemm final : public Gemm {
 public:
  OneDnnGemm(const GemmSpec& spec, int threads) : spec_(spec), threads_(std::max(threads, 1)) {
    const TeamScope team(threads_);
    a_ = matrix(spec.m, spec.k, spec.a, spec.lda, spec.trans_a);
    b_ = matrix(spec.k, spec.n, spec.b, spec.ldb, spec.trans_b);
    c_ = matrix(spec.m, spec.n, spec.c, spec.ldc, false);
    bias_ = dnnl::memory::desc({1, spec.n}, dnnl::memory::data_type::f32,
                               dnnl::memory::dims{spec.n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (spec.addend) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
#if DNNL_VERSION_MAJOR >= 3
    const auto described = spec.bias
                               ? dnnl::matmul::primitive_desc(engine(), a_, b_, bias_, c_, attr)
                               : dnnl::matmul::primitive_desc(engine(), a_, b_, c_, attr);
#else
    const auto what =
        spec.bias ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
    const dnnl::matmul::primitive_desc described(what, attr, engine());
#endif
    scratchpad_ = described.scratchpad_desc();
    matmul_ = dnnl::matmul(described);
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(scratchpad_.get_size()); }

  void run(const void* a, const void* b, void* c, const float* bias, const void* addend,
           void* workspace) const override {
    const TeamScope team(threads_);
    if (spec_.addend && addend != c) copy_addend(addend, c);
    const auto wrap = [](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> args = {
        {DNNL_ARG_SRC, wrap(a_, a)},
        {DNNL_ARG_WEIGHTS, wrap(b_, b)},
        {DNNL_ARG_DST, wrap(c_, c)},
        {DNNL_ARG_SCRATCHPAD, wrap(scratchpad_, workspace)}};
    if (spec_.bias) args.emplace(DNNL_ARG_BIAS, wrap(bias_, bias));
    dnnl::stream stream(engine());
    matmul_.execute(stream, args);
    stream.wait();
  }

 private:
  void copy_addend(const void* addend, void* c) const {
    const int64_t size = dtype_size(spec_.c);
    parallel_tasks(threads_, spec_.m, [&](int64_t row) {
      std::memcpy(static_cast<char*>(c) + row * spec_.ldc * size,
                  static_cast<const char*>(addend) + row * spec_.ldc * size,
                  static_cast<size_t>(spec_.n * size));
    });
  }

  GemmSpec spec_;
  int threads_;
  dnnl::memory::desc a_, b_, c_, bias_, scratchpad_;
  dnnl::matmul matmul_;
};

}  // namespace

bool has_bf16_dot_products() {
  return gemm_isa().avx512 && dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
}

std::unique_ptr<Gemm> make_onednn_gemm(const GemmSpec& spec, int threads) {
  try {
    return std::make_unique<OneDnnGemm>(spec, threads);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) {
      return nullptr;  // no such matmul on this CPU
    }
    throw;
  }
}

}  // namespace weft::cpu
