// matmul and its weight gradient.
#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/gemm.h"

namespace weft::cpu {
namespace {

// y[r, o] = sum_k x[r, k] w(k, o) + bias[o] + residual[r, o]
class Matmul final : public CpuKernel {
 public:
  Matmul(const KernelSpec& spec, int threads) {
    const TensorType& x = spec.inputs.at(0);
    GemmSpec gemm;
    gemm.m = num_rows(x.shape);
    gemm.k = x.shape.back();
    gemm.n = spec.outputs.at(0).shape.back();
    gemm.a = x.dtype;
    gemm.b = spec.inputs.at(1).dtype;
    gemm.c = spec.outputs[0].dtype;
    gemm.trans_b = spec.attrs.get_bool("transpose_w", true);
    gemm.lda = gemm.k;
    gemm.ldb = gemm.trans_b ? gemm.k : gemm.n;
    gemm.ldc = gemm.n;
    gemm.bias = has_input(spec, 2);
    gemm.addend = has_input(spec, 3);
    gemm_ = make_gemm(gemm, threads);
  }
  int64_t workspace_bytes() const override { return gemm_->workspace_bytes(); }
  void run(const KernelArgs& args) override {
    gemm_->run(in(args, 0), in(args, 1), out(args, 0), in<float>(args, 2), in(args, 3),
               args.workspace);
  }

 private:
  std::unique_ptr<Gemm> gemm_;
};

// dw(k, o) = acc(k, o) + sum_r x[r, k] dy[r, o]
class MatmulWgrad final : public CpuKernel {
 public:
  MatmulWgrad(const KernelSpec& spec, int threads)
      : transpose_w_(spec.attrs.get_bool("transpose_w", true)) {
    const TensorType& x = spec.inputs.at(0);
    const TensorType& dy = spec.inputs.at(1);
    const int64_t inner = x.shape.back(), outer = dy.shape.back();
    GemmSpec gemm;
    gemm.m = transpose_w_ ? outer : inner;
    gemm.n = transpose_w_ ? inner : outer;
    gemm.k = num_rows(x.shape);
    gemm.a = transpose_w_ ? dy.dtype : x.dtype;
    gemm.b = transpose_w_ ? x.dtype : dy.dtype;
    gemm.c = spec.outputs.at(0).dtype;
    gemm.trans_a = true;
    gemm.lda = gemm.m;
    gemm.ldb = gemm.n;
    gemm.ldc = gemm.n;
    gemm.addend = has_input(spec, 2);
    gemm_ = make_gemm(gemm, threads);
  }
  int64_t workspace_bytes() const override { return gemm_->workspace_bytes(); }
  void run(const KernelArgs& args) override {
    const void* x = in(args, 0);
    const void* dy = in(args, 1);
    gemm_->run(transpose_w_ ? dy : x, transpose_w_ ? x : dy, out(args, 0), nullptr, in(args, 2),
               args.workspace);
  }

 private:
  bool transpose_w_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace

KernelPtr make_matmul(const KernelSpec& spec, int threads) {
  return std::make_unique<Matmul>(spec, threads);
}
KernelPtr make_matmul_wgrad(const KernelSpec& spec, int threads) {
  return std::make_unique<MatmulWgrad>(spec, threads);
}

}  // namespace weft::cpu
