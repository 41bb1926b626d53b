// rmsnorm, layernorm, their gradients, and bias_grad.
#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/norm_isa.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/backend/cpu/row_sums.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLeast = 8192;  // elements per worker that pay for waking it

/// Rows are groups of `width` consecutive features, width = extent of the weight.
class NormKernel : public CpuKernel {
 public:
  NormKernel(const KernelSpec& spec, int threads)
      : width_(spec.inputs.at(1).elements()),
        rows_(div_exact(spec.inputs.at(0).elements(), width_)),
        float_(float_index(spec.inputs[0].dtype)),
        eps_(static_cast<float>(spec.attrs.get_double("eps"))),
        threads_(threads) {}

 protected:
  NormArgs common(const KernelArgs& args) const {
    NormArgs norm;
    norm.width = width_;
    norm.eps = eps_;
    norm.x = in(args, 0);
    norm.w = in<float>(args, 1);
    return norm;
  }
  void over_rows(NormArgs norm, void (*loop)(const NormArgs&)) const {
    parallel_range(threads_, rows_, 1, std::max<int64_t>(1, kLeast / width_),
                   [&](int64_t begin, int64_t end) {
                     NormArgs part = norm;
                     part.begin = begin;
                     part.end = end;
                     loop(part);
                   });
  }

  int64_t width_, rows_;
  int float_;
  float eps_;
  int threads_;
};

class RmsNorm final : public NormKernel {
 public:
  using NormKernel::NormKernel;
  void run(const KernelArgs& args) override {
    NormArgs norm = common(args);
    norm.y = out(args, 0);
    norm.rstd = out<float>(args, 1);
    over_rows(norm, norm_isa().rmsnorm[float_]);
  }
};

class LayerNorm final : public NormKernel {
 public:
  using NormKernel::NormKernel;
  void run(const KernelArgs& args) override {
    NormArgs norm = common(args);
    norm.b = in<float>(args, 2);
    norm.y = out(args, 0);
    norm.mean = out<float>(args, 1);
    norm.rstd = out<float>(args, 2);
    over_rows(norm, norm_isa().layernorm[float_]);
  }
};

class RmsNormGrad final : public NormKernel {
 public:
  RmsNormGrad(const KernelSpec& spec, int threads)
      : NormKernel(spec, threads), sums_(rows_, width_) {}
  int64_t workspace_bytes() const override { return sums_.workspace_bytes(); }
  void run(const KernelArgs& args) override {
    NormArgs norm = common(args);
    norm.rstd = const_cast<float*>(in<float>(args, 2));
    norm.dy = in(args, 3);
    norm.addend = in(args, 4);
    norm.dx = out(args, 0);
    auto* workspace = static_cast<float*>(args.workspace);
    sums_.accumulate(threads_, workspace, [&](int64_t begin, int64_t end, float* partial) {
      NormArgs part = norm;
      part.begin = begin;
      part.end = end;
      part.dw = partial;
      norm_isa().rmsnorm_grad[float_](part);
    });
    sums_.combine(threads_, workspace, in<float>(args, 5), out<float>(args, 1));
  }

 private:
  RowSums sums_;
};

class LayerNormGrad final : public NormKernel {
 public:
  LayerNormGrad(const KernelSpec& spec, int threads)
      : NormKernel(spec, threads), sums_w_(rows_, width_), sums_b_(rows_, width_) {}
  int64_t workspace_bytes() const override {
    return sums_w_.workspace_bytes() + sums_b_.workspace_bytes();
  }
  void run(const KernelArgs& args) override {
    NormArgs norm = common(args);
    norm.mean = const_cast<float*>(in<float>(args, 2));
    norm.rstd = const_cast<float*>(in<float>(args, 3));
    norm.dy = in(args, 4);
    norm.addend = in(args, 5);
    norm.dx = out(args, 0);
    auto* partial_w = static_cast<float*>(args.workspace);
    float* partial_b = partial_w + sums_w_.workspace_bytes() / 4;
    sums_w_.accumulate(threads_, partial_w, [&](int64_t begin, int64_t end, float* partial) {
      NormArgs part = norm;
      part.begin = begin;
      part.end = end;
      part.dw = partial;
      part.db = partial_b + (partial - partial_w);
      std::memset(part.db, 0, static_cast<size_t>(width_) * 4);
      norm_isa().layernorm_grad[float_](part);
    });
    sums_w_.combine(threads_, partial_w, in<float>(args, 6), out<float>(args, 1));
    sums_b_.combine(threads_, partial_b, in<float>(args, 7), out<float>(args, 2));
  }

 private:
  RowSums sums_w_, sums_b_;
};

class BiasGrad final : public CpuKernel {
 public:
  BiasGrad(const KernelSpec& spec, int threads)
      : width_(spec.outputs.at(0).elements()),
        float_(float_index(spec.inputs.at(0).dtype)),
        threads_(threads),
        sums_(num_rows(spec.inputs[0].shape), width_) {}
  int64_t workspace_bytes() const override { return sums_.workspace_bytes(); }
  void run(const KernelArgs& args) override {
    auto* workspace = static_cast<float*>(args.workspace);
    sums_.accumulate(threads_, workspace, [&](int64_t begin, int64_t end, float* partial) {
      norm_isa().add_rows[float_](begin, end, width_, in(args, 0), partial);
    });
    sums_.combine(threads_, workspace, in<float>(args, 1), out<float>(args, 0));
  }

 private:
  int64_t width_;
  int float_;
  int threads_;
  RowSums sums_;
};

}  // namespace

KernelPtr make_rmsnorm(const KernelSpec& spec, int threads) {
  return std::make_unique<RmsNorm>(spec, threads);
}
KernelPtr make_rmsnorm_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<RmsNormGrad>(spec, threads);
}
KernelPtr make_layernorm(const KernelSpec& spec, int threads) {
  return std::make_unique<LayerNorm>(spec, threads);
}
KernelPtr make_layernorm_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<LayerNormGrad>(spec, threads);
}
KernelPtr make_bias_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<BiasGrad>(spec, threads);
}

}  // namespace weft::cpu
