// sum_squares, verdict, adamw and sgd. The updates read each operand once and write it once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/elementwise_isa.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/backend/cpu/update_isa.h"
#include "weft/base/rng.h"
#include "weft/ir/element_numbers.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kLeast = 8192;  // elements per worker that pay for waking it

// Blocks of fixed size, added in order: the same bits for every team size.
class SumSquares final : public CpuKernel {
 public:
  SumSquares(const KernelSpec& spec, int threads)
      : count_(spec.inputs.at(0).elements()),
        float_(float_index(spec.inputs[0].dtype)),
        blocks_((count_ + kBlock - 1) / kBlock),
        threads_(threads) {}
  int64_t workspace_bytes() const override { return blocks_ * 8; }
  void run(const KernelArgs& args) override {
    const char* x = in<char>(args, 0);
    const int64_t size = float_ != 0 ? 2 : 4;
    auto* sums = static_cast<double*>(args.workspace);
    parallel_tasks(threads_, blocks_, [&](int64_t block) {
      sums[block] = update_isa().sum_squares[float_](std::min(kBlock, count_ - block * kBlock),
                                                     x + block * kBlock * size);
    });
    double total = 0;
    for (int64_t block = 0; block < blocks_; ++block) total += sums[block];
    *out<double>(args, 0) = total;
  }

 private:
  static constexpr int64_t kBlock = 16384;

  int64_t count_;
  int float_;
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

/// What both updates share: pieces of the tensors, the rounding of moments and the copy in the
/// kernels' dtype.
class Update : public CpuKernel {
 public:
  /// `slot`: an input that is a moment; `step`: the input with the number of the update.
  Update(const KernelSpec& spec, int threads, size_t slot, size_t step)
      : count_(spec.attrs.get_int("size", spec.inputs.at(0).elements())),
        begin_(spec.attrs.get_int("begin", 0)),
        step_(step),
        threads_(threads) {
    // An update of a piece takes each tensor either as the piece or whole.
    for (size_t i = 0; i < offsets_.size() && i < spec.inputs.size(); ++i) {
      const bool whole = spec.inputs[i].elements() != count_;
      offsets_[i] = whole ? begin_ : 0;
    }
    if (has_input(spec, slot) && spec.inputs[slot].dtype == DType::bf16) {
      rounded_ = 1;
      slot_size_ = 2;
      seed_ = static_cast<uint64_t>(spec.attrs.get_int("seed"));
      site_ = static_cast<uint64_t>(spec.attrs.get_int("site"));
      numbers_.emplace(spec.attrs.get_string("elements"));
    }
    if (spec.attrs.get_string("copy_dtype", "none") != "none") {
      copy_index_ = spec.outputs.size() - 1;
      copy_dtype_ = spec.outputs[copy_index_].dtype;
      if (has_float_index(copy_dtype_)) fused_copy_ = float_index(copy_dtype_);
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
  const void* slot_in(const KernelArgs& args, size_t i) const {
    const auto* p = in<char>(args, i);
    return p == nullptr ? p : p + offsets_[i] * slot_size_;
  }
  void* slot_out(const KernelArgs& args, size_t i, size_t tensor) const {
    auto* p = out<char>(args, i);
    return p == nullptr ? p : p + offsets_[tensor] * slot_size_;
  }
  int rounded() const { return rounded_; }

  /// update(args of the piece, index of the copy's loops); without `apply` only unchanged values
  /// are passed on.
  template <class F>
  void over_pieces(const UpdateArgs& whole, const KernelArgs& args, bool apply, const F& update) {
    char* copy = copy_dtype_ == DType::none ? nullptr : out<char>(args, copy_index_);
    const uint64_t key =
        rounded_ != 0 ? dropout_key(seed_, static_cast<uint64_t>(*in<int64_t>(args, step_)), site_)
                      : 0;
    parallel_range(threads_, count_, kGrain, kLeast, [&](int64_t begin, int64_t end) {
      uint32_t words[kPiece];
      const int64_t step = apply ? kPiece : end - begin;
      for (int64_t at = begin; at < end; at += step) {
        UpdateArgs piece = whole;
        piece.count = std::min(step, end - at);
        const auto move = [at](auto* p) { return p == nullptr ? p : p + at; };
        piece.w = move(whole.w), piece.g = move(whole.g), piece.new_w = move(whole.new_w);
        piece.m = move_slot(whole.m, at), piece.v = move_slot(whole.v, at);
        piece.new_m = move_slot(whole.new_m, at), piece.new_v = move_slot(whole.new_v, at);
        if (copy != nullptr) piece.copy = copy + at * dtype_size(copy_dtype_);
        if (apply) {
          if (rounded_ != 0) draw(key, at, piece.count, words);
          piece.words = words;
          update(piece, fused_copy_);
        } else {
          pass_on(piece);
        }
        if (copy != nullptr && (!apply || fused_copy_ == 0)) {
          convert_elements(piece.new_w, DType::f32, piece.copy, copy_dtype_, piece.count);
        }
      }
    });
  }

 private:
  /// Elements that stay in L1, so that random words and a copy that is not fused cost little.
  static constexpr int64_t kPiece = 4096;

  template <class Void>
  Void* move_slot(Void* p, int64_t elements) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return p == nullptr ? p : static_cast<Byte*>(p) + elements * slot_size_;
  }

  void draw(uint64_t key, int64_t at, int64_t count, uint32_t* words) const {
    numbers_->runs(begin_ + at, count, [&](int64_t offset, int64_t number, int64_t length) {
      update_isa().words(key, number, length, words + offset);
    });
  }

  void pass_on(const UpdateArgs& piece) const {
    const auto keep = [&](const void* from, void* to, int64_t size) {
      if (to != nullptr && from != to) {
        std::memcpy(to, from, static_cast<size_t>(piece.count * size));
      }
    };
    keep(piece.w, piece.new_w, 4);
    keep(piece.m, piece.new_m, slot_size_);
    keep(piece.v, piece.new_v, slot_size_);
  }

  int64_t count_, begin_;
  size_t step_;
  int threads_;
  std::array<int64_t, 4> offsets_{};  // elements before the piece, per tensor
  int rounded_ = 0;                   // moments are bf16
  int64_t slot_size_ = 4;
  uint64_t seed_ = 0, site_ = 0;
  std::optional<ElementNumbers> numbers_;
  size_t copy_index_ = 0;
  DType copy_dtype_ = DType::none;
  int fused_copy_ = 0;  // index of the loops that write the copy themselves
};

class AdamW final : public Update {
 public:
  AdamW(const KernelSpec& spec, int threads)
      : Update(spec, threads, 1, 7),
        beta1_(spec.attrs.get_double("beta1")),
        beta2_(spec.attrs.get_double("beta2")),
        eps_(spec.attrs.get_double("eps")),
        weight_decay_(spec.attrs.get_double("weight_decay")) {}
  void run(const KernelArgs& args) override {
    UpdateArgs whole;
    whole.w = tensor_in(args, 0), whole.g = tensor_in(args, 3);
    whole.m = slot_in(args, 1), whole.v = slot_in(args, 2);
    whole.new_w = tensor_out(args, 0, 0);
    whole.new_m = slot_out(args, 1, 1), whole.new_v = slot_out(args, 2, 2);
    const auto scalars =
        adamw_scalars(in<float>(args, 4), *in<float>(args, 5), beta1_, beta2_, eps_, weight_decay_);
    over_pieces(whole, args, *in<int32_t>(args, 6) != 0, [&](const UpdateArgs& piece, int copy) {
      update_isa().adamw[rounded()][copy](scalars, piece);
    });
  }

 private:
  double beta1_, beta2_, eps_, weight_decay_;
};

class Sgd final : public Update {
 public:
  Sgd(const KernelSpec& spec, int threads)
      : Update(spec, threads, 2, 6),
        momentum_(static_cast<float>(spec.attrs.get_double("momentum"))),
        weight_decay_(static_cast<float>(spec.attrs.get_double("weight_decay"))) {}
  void run(const KernelArgs& args) override {
    UpdateArgs whole;
    whole.w = tensor_in(args, 0), whole.g = tensor_in(args, 1), whole.m = slot_in(args, 2);
    whole.new_w = tensor_out(args, 0, 0);
    if (whole.m != nullptr) whole.new_m = slot_out(args, 1, 2);
    const SgdScalars<float> scalars = {*in<float>(args, 4), momentum_, weight_decay_,
                                       in<float>(args, 3)[0]};
    const auto& isa = update_isa();
    const auto& loops = whole.m != nullptr ? isa.sgd_momentum[rounded()] : isa.sgd;
    over_pieces(whole, args, *in<int32_t>(args, 5) != 0,
                [&](const UpdateArgs& piece, int copy) { loops[copy](scalars, piece); });
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
