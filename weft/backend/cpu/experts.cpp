// dispatch, combine, the gradient of its weights, and the gated activation on rows of experts.
#include <cstring>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/elementwise_isa.h"
#include "weft/backend/cpu/expert_runs.h"
#include "weft/backend/cpu/experts_isa.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLeast = 8192;  // elements per worker that pay for waking it
constexpr int64_t kTokens = 16;   // tokens that a worker takes at a time

/// Sizes of an operator that moves rows between tokens and experts. `rows`, `slots` and `counts`
/// are the indices of its operands; dispatch makes its rows.
class MoveKernel : public CpuKernel {
 public:
  MoveKernel(const KernelSpec& spec, const TensorType& rows, size_t slots, size_t counts,
             int threads)
      : attrs_(spec.attrs),
        rows_(rows),
        counts_(spec.inputs.at(counts)),
        sequences_(spec.inputs.at(slots).shape.at(0)),
        length_(spec.inputs[slots].shape.at(1)),
        top_k_(spec.inputs[slots].shape.at(2)),
        width_(rows.shape.back()),
        float_(float_index(rows.dtype)),
        row_bytes_(width_ * dtype_size(rows.dtype)),
        threads_(threads) {}

 protected:
  ExpertRows rows_with(const int32_t* counts) const { return {attrs_, rows_, counts_, counts}; }

  /// f(token, sequence, worker) for every token, by the team.
  template <class F>
  void over_tokens(const F& f) const {
    const int64_t tokens = sequences_ * length_;
    const bool small = tokens * top_k_ * width_ < kLeast;
    parallel_dealt(small ? 1 : threads_, (tokens + kTokens - 1) / kTokens,
                   [&](int64_t task, int64_t worker) {
                     const int64_t end = std::min(tokens, (task + 1) * kTokens);
                     for (int64_t t = task * kTokens; t < end; ++t) f(t, t / length_, worker);
                   });
  }

  Attrs attrs_;
  TensorType rows_, counts_;
  int64_t sequences_, length_, top_k_, width_;
  int float_;
  int64_t row_bytes_;
  int threads_;
};

// rows[slot(t, j)] = weights[t, j] x[t]
class Dispatch final : public MoveKernel {
 public:
  Dispatch(const KernelSpec& spec, int threads)
      : MoveKernel(spec, spec.outputs.at(0), 1, 2, threads) {}
  void run(const KernelArgs& args) override {
    const ExpertRows rows = rows_with(in<int32_t>(args, 2));
    const char* x = in<char>(args, 0);
    const int32_t* slots = in<int32_t>(args, 1);
    const float* weights = in<float>(args, 3);
    char* to = out<char>(args, 0);
    over_runs(
        threads_, rows, num_rows(rows_.shape), 4 * kLeast / (width_ + 1), [](int64_t, int64_t) {},
        [&](int64_t first, int64_t count) {
          std::memset(to + first * row_bytes_, 0, static_cast<size_t>(count * row_bytes_));
        });
    over_tokens([&](int64_t t, int64_t b, int64_t) {
      for (int64_t i = t * top_k_; i < (t + 1) * top_k_; ++i) {
        const int64_t row = rows.row_of(b, slots[i]);
        if (row < 0) continue;
        const char* token = x + t * row_bytes_;
        if (weights == nullptr) {
          std::memcpy(to + row * row_bytes_, token, static_cast<size_t>(row_bytes_));
        } else {
          experts_isa().scale[float_](width_, weights[i], token, to + row * row_bytes_);
        }
      }
    });
  }
};

// y[t] = residual[t] + sum_j weights[t, j] rows[slot(t, j)]
class Combine final : public MoveKernel {
 public:
  Combine(const KernelSpec& spec, int threads)
      : MoveKernel(spec, spec.inputs.at(0), 1, 2, threads) {}
  int64_t workspace_bytes() const override { return threads_ * worker_bytes(); }
  void run(const KernelArgs& args) override {
    const ExpertRows rows = rows_with(in<int32_t>(args, 2));
    const char* from = in<char>(args, 0);
    const int32_t* slots = in<int32_t>(args, 1);
    const float* weights = in<float>(args, 3);
    const char* residual = in<char>(args, 4);
    char* y = out<char>(args, 0);
    over_tokens([&](int64_t t, int64_t b, int64_t worker) {
      // The copies of this token that are here.
      char* scratch = static_cast<char*>(args.workspace) + worker * worker_bytes();
      auto* copies = reinterpret_cast<const void**>(scratch);
      auto* factors = reinterpret_cast<float*>(scratch + top_k_ * 8);
      int64_t count = 0;
      for (int64_t i = t * top_k_; i < (t + 1) * top_k_; ++i) {
        const int64_t row = rows.row_of(b, slots[i]);
        if (row < 0) continue;
        copies[count] = from + row * row_bytes_;
        factors[count++] = weights == nullptr ? 1.0f : weights[i];
      }
      const char* add = residual == nullptr ? nullptr : residual + t * row_bytes_;
      experts_isa().add_up[float_](width_, count, copies, factors, add, y + t * row_bytes_);
    });
  }

 private:
  int64_t worker_bytes() const { return round_up(top_k_ * 12, 64); }
};

// dweights[t, j] = rows[slot(t, j)] . dy[t]
class CombineWeightGrad final : public MoveKernel {
 public:
  CombineWeightGrad(const KernelSpec& spec, int threads)
      : MoveKernel(spec, spec.inputs.at(0), 2, 3, threads) {}
  void run(const KernelArgs& args) override {
    const ExpertRows rows = rows_with(in<int32_t>(args, 3));
    const char* from = in<char>(args, 0);
    const char* dy = in<char>(args, 1);
    const int32_t* slots = in<int32_t>(args, 2);
    float* to = out<float>(args, 0);
    over_tokens([&](int64_t t, int64_t b, int64_t) {
      for (int64_t i = t * top_k_; i < (t + 1) * top_k_; ++i) {
        const int64_t row = rows.row_of(b, slots[i]);
        to[i] = row < 0 ? 0.0f
                        : experts_isa().dot[float_](width_, from + row * row_bytes_,
                                                    dy + t * row_bytes_);
      }
    });
  }
};

/// Element by element over the rows that belong to tokens; the others become 0.
class RowKernel : public CpuKernel {
 public:
  RowKernel(const KernelSpec& spec, size_t counts, int threads)
      : attrs_(spec.attrs),
        rows_(spec.inputs.at(0)),
        counts_(spec.inputs.at(counts)),
        width_(rows_.shape.back()),
        row_bytes_(width_ * dtype_size(rows_.dtype)),
        float_(float_index(rows_.dtype)),
        threads_(threads) {}

 protected:
  /// f(first byte, elements)
  template <class F>
  void over_rows(const KernelArgs& args, const int32_t* counts, const F& f) const {
    over_runs(
        threads_, {attrs_, rows_, counts_, counts}, num_rows(rows_.shape), kLeast / (width_ + 1),
        [&](int64_t first, int64_t count) { f(first * row_bytes_, count * width_); },
        [&](int64_t first, int64_t count) {
          for (void* output : args.outputs) {
            if (output == nullptr) continue;
            std::memset(static_cast<char*>(output) + first * row_bytes_, 0,
                        static_cast<size_t>(count * row_bytes_));
          }
        });
  }

  Attrs attrs_;
  TensorType rows_, counts_;
  int64_t width_, row_bytes_;
  int float_;
  int threads_;
};

// y = act(gate) x up, or act(gate) without up.
class ExpertGlu final : public RowKernel {
 public:
  ExpertGlu(const KernelSpec& spec, int threads)
      : RowKernel(spec, 2, threads),
        gated_(elementwise_isa().glu[activation_kind(spec)][float_]),
        plain_(elementwise_isa().activation[activation_kind(spec)][float_]) {}
  void run(const KernelArgs& args) override {
    const char* gate = in<char>(args, 0);
    const char* up = in<char>(args, 1);
    char* y = out<char>(args, 0);
    over_rows(args, in<int32_t>(args, 2), [&](int64_t byte, int64_t count) {
      if (up != nullptr) {
        gated_(count, gate + byte, up + byte, y + byte);
      } else {
        plain_(count, gate + byte, y + byte);
      }
    });
  }

 private:
  Binary gated_;
  Unary plain_;
};

class ExpertGluGrad final : public RowKernel {
 public:
  ExpertGluGrad(const KernelSpec& spec, int threads)
      : RowKernel(spec, 3, threads),
        gated_(elementwise_isa().glu_grad[activation_kind(spec)][float_]),
        plain_(elementwise_isa().activation_grad[activation_kind(spec)][float_]) {}
  void run(const KernelArgs& args) override {
    const char* gate = in<char>(args, 0);
    const char* up = in<char>(args, 1);
    const char* dy = in<char>(args, 2);
    char* dgate = out<char>(args, 0);
    char* dup = out<char>(args, 1);
    over_rows(args, in<int32_t>(args, 3), [&](int64_t byte, int64_t count) {
      if (up != nullptr) {
        gated_(count, gate + byte, up + byte, dy + byte, dgate + byte, dup + byte);
      } else {
        plain_(count, gate + byte, dy + byte, dgate + byte);
      }
    });
  }

 private:
  GluGrad gated_;
  Binary plain_;
};

}  // namespace

KernelPtr make_dispatch(const KernelSpec& spec, int threads) {
  return std::make_unique<Dispatch>(spec, threads);
}
KernelPtr make_combine(const KernelSpec& spec, int threads) {
  return std::make_unique<Combine>(spec, threads);
}
KernelPtr make_combine_weight_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<CombineWeightGrad>(spec, threads);
}
KernelPtr make_expert_glu(const KernelSpec& spec, int threads) {
  return std::make_unique<ExpertGlu>(spec, threads);
}
KernelPtr make_expert_glu_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<ExpertGluGrad>(spec, threads);
}

}  // namespace weft::cpu
