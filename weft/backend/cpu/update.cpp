// sum_squares, verdict, adamw and sgd. The updates read each operand once and write it once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/elementwise_isa.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/backend/cpu/update_isa.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kLeast = 8192;  // elements per worker that pay for waking it

// Blocks of fixed size, added in order: the same bits for every team size.
class SumSquares final : public CpuKernel {
 public:
  SumSquares(const KernelSpec& spec, int threads)
      : count_(spec.inputs.at(0).elements()),
        bf16_(spec.inputs[0].dtype == DType::bf16),
        blocks_((count_ + kBlock - 1) / kBlock),
        threads_(threads) {}
  int64_t workspace_bytes() const override { return blocks_ * 8; }
  void run(const KernelArgs& args) override {
    const char* x = in<char>(args, 0);
    const int64_t size = bf16_ != 0 ? 2 : 4;
    auto* sums = static_cast<double*>(args.workspace);
    parallel_tasks(threads_, blocks_, [&](int64_t block) {
      sums[block] = update_isa().sum_squares[bf16_](std::min(kBlock, count_ - block * kBlock),
                                                    x + block * kBlock * size);
    });
    double total = 0;
    for (int64_t block = 0; block < blocks_; ++block) total += sums[block];
    *out<double>(args, 0) = total;
  }

 private:
  static constexpr int64_t kBlock = 16384;

  int64_t count_;
  int bf16_;
  int64_t blocks_;
  int threads_;
};

class Verdict final : public CpuKernel {
 public:
  explicit Verdict(const KernelSpec& spec)
      : num_inputs_(spec.inputs.size()), max_norm_(spec.attrs.get_double("max_norm")) {}
  void run(const KernelArgs& args) override {
    const double inv_scale = *in<float>(args, 0);
    double sum = 0;
    for (size_t i = 1; i < num_inputs_; ++i) sum += *in<double>(args, i);
    const double norm = std::sqrt(sum) * inv_scale;
    const bool finite = std::isfinite(norm);
    const double clip = max_norm_ > 0 ? std::min(1.0, max_norm_ / (norm + 1e-6)) : 1.0;
    *out<float>(args, 0) = static_cast<float>(norm);
    *out<float>(args, 1) = finite ? static_cast<float>(inv_scale * clip) : 0.0f;
    *out<int32_t>(args, 2) = finite ? 1 : 0;
  }

 private:
  size_t num_inputs_;
  double max_norm_;
};

/// What both updates share: pieces of the tensors and the copy in the kernels' dtype.
class Update : public CpuKernel {
 public:
  Update(const KernelSpec& spec, int threads)
      : count_(spec.attrs.get_int("size", spec.inputs.at(0).elements())), threads_(threads) {
    // An update of a piece takes each tensor either as the piece or whole.
    for (size_t i = 0; i < offsets_.size() && i < spec.inputs.size(); ++i) {
      const bool whole = spec.inputs[i].elements() != count_;
      offsets_[i] = whole ? spec.attrs.get_int("begin", 0) : 0;
    }
    if (spec.attrs.get_string("copy_dtype", "none") != "none") {
      copy_index_ = spec.outputs.size() - 1;
      copy_dtype_ = spec.outputs[copy_index_].dtype;
    }
  }

 protected:
  /// Operand `i` from its piece on; an absent one stays nullptr. Outputs lie like tensor `tensor`.
  const float* tensor_in(const KernelArgs& args, size_t i) const {
    const auto* p = in<float>(args, i);
    return p == nullptr ? p : p + offsets_[i];
  }
  float* tensor_out(const KernelArgs& args, size_t i, size_t tensor) const {
    auto* p = out<float>(args, i);
    return p == nullptr ? p : p + offsets_[tensor];
  }

  /// update(args of the piece); without `apply` only unchanged values are passed on.
  template <class F>
  void over_pieces(const UpdateArgs& whole, const KernelArgs& args, bool apply, const F& update) {
    char* copy = copy_dtype_ == DType::none ? nullptr : out<char>(args, copy_index_);
    parallel_range(threads_, count_, kGrain, kLeast, [&](int64_t begin, int64_t end) {
      // Pieces stay in L1, so that a copy in another dtype than bf16 is a cheap second step.
      const int64_t step = apply ? 4096 : end - begin;
      for (int64_t at = begin; at < end; at += step) {
        UpdateArgs piece = whole;
        piece.count = std::min(step, end - at);
        const auto move = [at](auto* p) { return p == nullptr ? p : p + at; };
        piece.w = move(whole.w), piece.m = move(whole.m), piece.v = move(whole.v);
        piece.g = move(whole.g);
        piece.new_w = move(whole.new_w), piece.new_m = move(whole.new_m);
        piece.new_v = move(whole.new_v);
        if (copy != nullptr) piece.copy = copy + at * dtype_size(copy_dtype_);
        if (apply) {
          update(piece, copy_dtype_ == DType::bf16);
        } else {
          pass_on(piece);
        }
        if (copy != nullptr && (!apply || copy_dtype_ != DType::bf16)) {
          convert_elements(piece.new_w, DType::f32, piece.copy, copy_dtype_, piece.count);
        }
      }
    });
  }

 private:
  static void pass_on(const UpdateArgs& piece) {
    const auto keep = [&](const float* from, float* to) {
      if (to != nullptr && from != to) {
        std::memcpy(to, from, static_cast<size_t>(piece.count) * 4);
      }
    };
    keep(piece.w, piece.new_w);
    keep(piece.m, piece.new_m);
    keep(piece.v, piece.new_v);
  }

  int64_t count_;
  int threads_;
  std::array<int64_t, 4> offsets_{};  // elements before the piece, per tensor
  size_t copy_index_ = 0;
  DType copy_dtype_ = DType::none;
};

class AdamW final : public Update {
 public:
  AdamW(const KernelSpec& spec, int threads)
      : Update(spec, threads),
        beta1_(spec.attrs.get_double("beta1")),
        beta2_(spec.attrs.get_double("beta2")),
        eps_(spec.attrs.get_double("eps")),
        weight_decay_(spec.attrs.get_double("weight_decay")) {}
  void run(const KernelArgs& args) override {
    UpdateArgs whole;
    whole.w = tensor_in(args, 0), whole.m = tensor_in(args, 1), whole.v = tensor_in(args, 2);
    whole.g = tensor_in(args, 3);
    whole.new_w = tensor_out(args, 0, 0), whole.new_m = tensor_out(args, 1, 1);
    whole.new_v = tensor_out(args, 2, 2);
    const auto scalars =
        adamw_scalars(in<float>(args, 4), *in<float>(args, 5), beta1_, beta2_, eps_, weight_decay_);
    over_pieces(whole, args, *in<int32_t>(args, 6) != 0, [&](const UpdateArgs& piece, bool copy) {
      update_isa().adamw[copy ? 1 : 0](scalars, piece);
    });
  }

 private:
  double beta1_, beta2_, eps_, weight_decay_;
};

class Sgd final : public Update {
 public:
  Sgd(const KernelSpec& spec, int threads)
      : Update(spec, threads),
        momentum_(static_cast<float>(spec.attrs.get_double("momentum"))),
        weight_decay_(static_cast<float>(spec.attrs.get_double("weight_decay"))) {}
  void run(const KernelArgs& args) override {
    UpdateArgs whole;
    whole.w = tensor_in(args, 0), whole.g = tensor_in(args, 1), whole.m = tensor_in(args, 2);
    whole.new_w = tensor_out(args, 0, 0);
    if (whole.m != nullptr) whole.new_m = tensor_out(args, 1, 2);
    const SgdScalars<float> scalars = {*in<float>(args, 4), momentum_, weight_decay_,
                                       in<float>(args, 3)[0]};
    const auto& loops = whole.m != nullptr ? update_isa().sgd_momentum : update_isa().sgd;
    over_pieces(whole, args, *in<int32_t>(args, 5) != 0,
                [&](const UpdateArgs& piece, bool copy) { loops[copy ? 1 : 0](scalars, piece); });
  }

 private:
  float momentum_, weight_decay_;
};

}  // namespace

KernelPtr make_sum_squares(const KernelSpec& spec, int threads) {
  return std::make_unique<SumSquares>(spec, threads);
}
KernelPtr make_verdict(const KernelSpec& spec, int) { return std::make_unique<Verdict>(spec); }
KernelPtr make_adamw(const KernelSpec& spec, int threads) {
  return std::make_unique<AdamW>(spec, threads);
}
KernelPtr make_sgd(const KernelSpec& spec, int threads) {
  return std::make_unique<Sgd>(spec, threads);
}

}  // namespace weft::cpu
