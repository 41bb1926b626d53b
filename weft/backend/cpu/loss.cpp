// cross_entropy, its gradient, and the forms fused with the output projection, which hold the
// logits of chunk_rows rows at a time. The loss is the sum over rows whose label is not -100 of
// lse - logit[label]; row losses are added in order, so it does not depend on the team size.
#include <algorithm>
#include <cstring>

#include "weft/backend/cpu/columns.h"
#include "weft/backend/cpu/gemm.h"
#include "weft/backend/cpu/loss_isa.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

void check_labels(const int32_t* labels, int64_t count, int64_t classes) {
  for (int64_t t = 0; t < count; ++t) {
    WEFT_CHECK(labels[t] == kIgnored || (labels[t] >= 0 && labels[t] < classes),
               "cpu.cross_entropy", "label {} of {} classes", labels[t], classes);
  }
}

float ordered_sum(const double* values, int64_t count) {
  double sum = 0;
  for (int64_t t = 0; t < count; ++t) sum += values[t];
  return static_cast<float>(sum);
}

class CrossEntropy final : public CpuKernel {
 public:
  CrossEntropy(const KernelSpec& spec, int threads)
      : classes_(spec.inputs.at(0).shape.back()),
        rows_(num_rows(spec.inputs[0].shape)),
        float_(float_index(spec.inputs[0].dtype)),
        threads_(threads) {}
  int64_t workspace_bytes() const override { return rows_ * 8; }
  void run(const KernelArgs& args) override {
    const int32_t* labels = in<int32_t>(args, 1);
    check_labels(labels, rows_, classes_);
    const char* logits = in<char>(args, 0);
    float* lse = out<float>(args, 1);
    auto* losses = static_cast<double*>(args.workspace);
    const int64_t row_bytes = classes_ * (float_ != 0 ? 2 : 4);
    parallel_range(threads_, rows_, 1, std::max<int64_t>(1, 4096 / (classes_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       double picked = 0;
                       const double value = loss_isa().log_sum_exp[float_](
                           classes_, logits + t * row_bytes, labels[t], &picked);
                       lse[t] = static_cast<float>(value);
                       losses[t] = labels[t] == kIgnored ? 0.0 : value - picked;
                     }
                   });
    *out<float>(args, 0) = ordered_sum(losses, rows_);
  }

 private:
  int64_t classes_, rows_;
  int float_;
  int threads_;
};

class CrossEntropyGrad final : public CpuKernel {
 public:
  CrossEntropyGrad(const KernelSpec& spec, int threads)
      : classes_(spec.inputs.at(0).shape.back()),
        rows_(num_rows(spec.inputs[0].shape)),
        columns_(spec.attrs, classes_),
        float_(float_index(spec.inputs[0].dtype)),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int32_t* labels = in<int32_t>(args, 1);
    columns_.check(labels, rows_);
    const char* logits = in<char>(args, 0);
    const float* lse = in<float>(args, 2);
    const float scale = *in<float>(args, 3);
    char* dlogits = out<char>(args, 0);
    const int64_t row_bytes = classes_ * (float_ != 0 ? 2 : 4);
    parallel_range(threads_, rows_, 1, std::max<int64_t>(1, 4096 / (classes_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       char* to = dlogits + t * row_bytes;
                       if (labels[t] == kIgnored) {
                         std::memset(to, 0, static_cast<size_t>(row_bytes));
                       } else {
                         loss_isa().softmax_grad[float_](classes_, logits + t * row_bytes, lse[t],
                                                         scale, columns_.of(labels[t]), to);
                       }
                     }
                   });
  }

 private:
  int64_t classes_, rows_;
  Columns columns_;
  int float_;
  int threads_;
};

/// Shapes of the fused forms. Workspace: row losses, logits of a chunk, then the matmul's own.
class Projection : public CpuKernel {
 public:
  Projection(const KernelSpec& spec, int threads)
      : transpose_w_(spec.attrs.get_bool("transpose_w", true)),
        dtype_(spec.inputs.at(0).dtype),
        rows_(num_rows(spec.inputs[0].shape)),
        hidden_(spec.inputs[0].shape.back()),
        classes_(spec.inputs.at(1).shape.at(transpose_w_ ? 0 : 1)),
        chunk_(
            std::clamp<int64_t>(spec.attrs.get_int("chunk_rows"), 1, std::max<int64_t>(rows_, 1))),
        threads_(threads) {
    logits_.make(*this, chunk_, [&](int64_t rows) { return logits_spec(rows); });
  }

 protected:
  /// A matmul for whole chunks and one for the shorter last chunk.
  struct ChunkedGemm {
    template <class MakeSpec>
    void make(const Projection& owner, int64_t chunk, const MakeSpec& spec) {
      whole = make_gemm(spec(chunk), owner.threads_);
      const int64_t last = owner.rows_ % chunk;
      if (last != 0) rest = make_gemm(spec(last), owner.threads_);
    }
    const Gemm& of(int64_t rows, int64_t chunk) const { return rows == chunk ? *whole : *rest; }
    int64_t workspace_bytes() const {
      return std::max(whole == nullptr ? 0 : whole->workspace_bytes(),
                      rest == nullptr ? 0 : rest->workspace_bytes());
    }
    std::unique_ptr<Gemm> whole, rest;
  };

  GemmSpec logits_spec(int64_t rows) const {
    GemmSpec gemm;
    gemm.m = rows;
    gemm.n = classes_;
    gemm.k = hidden_;
    gemm.a = gemm.b = dtype_;
    gemm.trans_b = transpose_w_;
    gemm.lda = hidden_;
    gemm.ldb = transpose_w_ ? hidden_ : classes_;
    gemm.ldc = logits_ld();
    return gemm;
  }
  /// Rows of logits start at cache lines, also when they hold bf16.
  int64_t logits_ld() const { return round_up(classes_, 32); }
  int64_t losses_bytes() const { return round_up(rows_ * 8, 64); }
  int64_t logits_bytes() const { return chunk_ * logits_ld() * 4; }
  double* losses(const KernelArgs& args) const { return static_cast<double*>(args.workspace); }
  float* logits(const KernelArgs& args) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + losses_bytes());
  }
  void* gemm_workspace(const KernelArgs& args) const {
    return static_cast<char*>(args.workspace) + losses_bytes() + logits_bytes();
  }
  const char* x_rows(const KernelArgs& args, int64_t row) const {
    return in<char>(args, 0) + row * hidden_ * dtype_size(dtype_);
  }

  bool transpose_w_;
  DType dtype_;
  int64_t rows_, hidden_, classes_, chunk_;
  int threads_;
  ChunkedGemm logits_;
};

class LinearCrossEntropy final : public Projection {
 public:
  using Projection::Projection;
  int64_t workspace_bytes() const override {
    return losses_bytes() + logits_bytes() + logits_.workspace_bytes();
  }
  void run(const KernelArgs& args) override {
    const int32_t* labels = in<int32_t>(args, 2);
    check_labels(labels, rows_, classes_);
    float* chunk_logits = logits(args);
    for (int64_t row = 0; row < rows_; row += chunk_) {
      const int64_t rows = std::min(chunk_, rows_ - row);
      logits_.of(rows, chunk_)
          .run(x_rows(args, row), in(args, 1), chunk_logits, nullptr, nullptr,
               gemm_workspace(args));
      parallel_dynamic(threads_, rows, [&](int64_t r, int64_t) {
        const int32_t label = labels[row + r];
        double picked = 0, value = 0;
        if (label != kIgnored) {
          value =
              loss_isa().log_sum_exp[0](classes_, chunk_logits + r * logits_ld(), label, &picked);
        }
        losses(args)[row + r] = value - picked;
      });
    }
    *out<float>(args, 0) = ordered_sum(losses(args), rows_);
  }
};

class LinearCrossEntropyTrain final : public Projection {
 public:
  LinearCrossEntropyTrain(const KernelSpec& spec, int threads)
      : Projection(spec, threads),
        // With bf16 dot products, gradients of the logits are kept in bf16, in the first half of
        // each row, so that both products below use them.
        half_(dtype_ == DType::bf16 && has_bf16_dot_products()) {
    dx_.make(*this, chunk_, [&](int64_t rows) { return dx_spec(rows); });
    const auto dw = [&](bool addend) {
      return [this, addend](int64_t rows) { return dw_spec(rows, addend); };
    };
    dw_add_.make(*this, chunk_, dw(true));
    if (!has_input(spec, 4)) dw_first_ = make_gemm(dw_spec(chunk_, false), threads_);
  }
  int64_t workspace_bytes() const override {
    int64_t gemm =
        std::max({logits_.workspace_bytes(), dx_.workspace_bytes(), dw_add_.workspace_bytes()});
    if (dw_first_ != nullptr) gemm = std::max(gemm, dw_first_->workspace_bytes());
    return losses_bytes() + logits_bytes() + gemm;
  }
  void run(const KernelArgs& args) override {
    const int32_t* labels = in<int32_t>(args, 2);
    check_labels(labels, rows_, classes_);
    const float scale = *in<float>(args, 3);
    const float* acc = in<float>(args, 4);
    float* dw = out<float>(args, 2);
    float* dlogits = logits(args);
    void* scratch = gemm_workspace(args);
    const auto dw_bytes = static_cast<size_t>(hidden_ * classes_) * sizeof(float);
    if (rows_ == 0 && acc == nullptr) std::memset(dw, 0, dw_bytes);
    if (rows_ == 0 && acc != nullptr) std::memmove(dw, acc, dw_bytes);
    for (int64_t row = 0; row < rows_; row += chunk_) {
      const int64_t rows = std::min(chunk_, rows_ - row);
      const char* x = x_rows(args, row);
      logits_.of(rows, chunk_).run(x, in(args, 1), dlogits, nullptr, nullptr, scratch);
      parallel_dynamic(threads_, rows, [&](int64_t r, int64_t) {
        const int32_t label = labels[row + r];
        float* line = dlogits + r * logits_ld();
        if (label == kIgnored) {
          losses(args)[row + r] = 0;
          std::memset(line, 0, static_cast<size_t>(classes_) * (half_ ? 2 : 4));
        } else {
          losses(args)[row + r] = loss_isa().train[half_ ? 1 : 0](classes_, line, scale, label);
        }
      });
      char* dx = out<char>(args, 1) + row * hidden_ * dtype_size(dtype_);
      const Gemm& dw_gemm =
          row == 0 && dw_first_ != nullptr ? *dw_first_ : dw_add_.of(rows, chunk_);
      const float* addend = row != 0 ? dw : acc;
      if (transpose_w_) {
        dw_gemm.run(dlogits, x, dw, nullptr, addend, scratch);
      } else {
        dw_gemm.run(x, dlogits, dw, nullptr, addend, scratch);
      }
      // Last, because dx may be the memory of x.
      dx_.of(rows, chunk_).run(dlogits, in(args, 1), dx, nullptr, nullptr, scratch);
    }
    *out<float>(args, 0) = ordered_sum(losses(args), rows_);
  }

 private:
  DType dlogits_dtype() const { return half_ ? DType::bf16 : DType::f32; }
  int64_t dlogits_ld() const { return half_ ? 2 * logits_ld() : logits_ld(); }

  GemmSpec dx_spec(int64_t rows) const {
    GemmSpec gemm;
    gemm.m = rows;
    gemm.n = hidden_;
    gemm.k = classes_;
    gemm.a = dlogits_dtype();
    gemm.b = gemm.c = dtype_;
    gemm.trans_b = !transpose_w_;
    gemm.lda = dlogits_ld();
    gemm.ldb = transpose_w_ ? hidden_ : classes_;
    gemm.ldc = hidden_;
    return gemm;
  }
  GemmSpec dw_spec(int64_t rows, bool addend) const {
    GemmSpec gemm;
    gemm.m = transpose_w_ ? classes_ : hidden_;
    gemm.n = transpose_w_ ? hidden_ : classes_;
    gemm.k = rows;
    gemm.a = transpose_w_ ? dlogits_dtype() : dtype_;
    gemm.b = transpose_w_ ? dtype_ : dlogits_dtype();
    gemm.trans_a = true;
    gemm.lda = transpose_w_ ? dlogits_ld() : hidden_;
    gemm.ldb = transpose_w_ ? hidden_ : dlogits_ld();
    gemm.ldc = gemm.n;
    gemm.addend = addend;
    return gemm;
  }

  bool half_;
  ChunkedGemm dx_, dw_add_;
  std::unique_ptr<Gemm> dw_first_;  // without accumulator: the first chunk overwrites dw
};

}  // namespace

KernelPtr make_cross_entropy(const KernelSpec& spec, int threads) {
  return std::make_unique<CrossEntropy>(spec, threads);
}
KernelPtr make_cross_entropy_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<CrossEntropyGrad>(spec, threads);
}
KernelPtr make_linear_cross_entropy(const KernelSpec& spec, int threads) {
  return std::make_unique<LinearCrossEntropy>(spec, threads);
}
KernelPtr make_linear_cross_entropy_train(const KernelSpec& spec, int threads) {
  return std::make_unique<LinearCrossEntropyTrain>(spec, threads);
}

}  // namespace weft::cpu
