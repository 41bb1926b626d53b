// The stages of cross entropy that may be cut along the vocabulary: row_lse, pick_logits and
// token_loss.
#include <algorithm>

#include "weft/backend/cpu/columns.h"
#include "weft/backend/cpu/loss_isa.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

class RowLse final : public CpuKernel {
 public:
  RowLse(const KernelSpec& spec, int threads)
      : columns_(spec.inputs.at(0).shape.back()),
        rows_(num_rows(spec.inputs[0].shape)),
        float_(float_index(spec.inputs[0].dtype)),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const char* logits = in<char>(args, 0);
    float* lse = out<float>(args, 0);
    const int64_t row_bytes = columns_ * (float_ != 0 ? 2 : 4);
    parallel_range(threads_, rows_, 1, std::max<int64_t>(1, 4096 / (columns_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       lse[t] = static_cast<float>(loss_isa().log_sum_exp[float_](
                           columns_, logits + t * row_bytes, -1, nullptr));
                     }
                   });
  }

 private:
  int64_t columns_, rows_;
  int float_;
  int threads_;
};

// The logit of the label where it is among the columns here, else 0.
class PickLogits final : public CpuKernel {
 public:
  explicit PickLogits(const KernelSpec& spec)
      : columns_(spec.attrs, spec.inputs.at(0).shape.back()),
        rows_(num_rows(spec.inputs[0].shape)),
        float_(float_index(spec.inputs[0].dtype)) {}
  void run(const KernelArgs& args) override {
    const int32_t* labels = in<int32_t>(args, 1);
    columns_.check(labels, rows_);
    switch (float_) {
      case 0: return pick(in<float>(args, 0), labels, out<float>(args, 0));
      case 1: return pick(in<BF16>(args, 0), labels, out<float>(args, 0));
      default: return pick(in<F16>(args, 0), labels, out<float>(args, 0));
    }
  }

 private:
  template <class T>
  void pick(const T* logits, const int32_t* labels, float* picked) const {
    for (int64_t t = 0; t < rows_; ++t) {
      const int64_t column = columns_.of(labels[t]);
      const T* row = logits + t * columns_.count;
      picked[t] = column < 0 ? 0.0f : as_float(row[column]);
    }
  }

  Columns columns_;
  int64_t rows_;
  int float_;
};

class TokenLoss final : public CpuKernel {
 public:
  explicit TokenLoss(const KernelSpec& spec) : rows_(spec.inputs.at(0).elements()) {}
  void run(const KernelArgs& args) override {
    const float* lse = in<float>(args, 0);
    const float* picked = in<float>(args, 1);
    const int32_t* labels = in<int32_t>(args, 2);
    double loss = 0;
    for (int64_t t = 0; t < rows_; ++t) {
      if (labels[t] != kIgnored) loss += static_cast<double>(lse[t]) - picked[t];
    }
    *out<float>(args, 0) = static_cast<float>(loss);
  }

 private:
  int64_t rows_;
};

}  // namespace

KernelPtr make_row_lse(const KernelSpec& spec, int threads) {
  return std::make_unique<RowLse>(spec, threads);
}
KernelPtr make_pick_logits(const KernelSpec& spec, int) {
  return std::make_unique<PickLogits>(spec);
}
KernelPtr make_token_loss(const KernelSpec& spec, int) { return std::make_unique<TokenLoss>(spec); }

}  // namespace weft::cpu
