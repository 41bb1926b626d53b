// add, cast, activation, glu, dropout and their gradients.
#include <cmath>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/elementwise_isa.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/base/rng.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGrain = 1024;  // elements; also keeps 16-bit pieces on whole cache lines
constexpr int64_t kLeast = 8192;  // elements per worker that pay for waking it

/// Runs `f(begin, count)` over the elements of one operand by the team.
class ElementKernel : public CpuKernel {
 public:
  ElementKernel(const KernelSpec& spec, int threads)
      : count_(spec.inputs.at(0).elements()),
        float_(float_index(spec.inputs.at(0).dtype)),
        size_(dtype_size(spec.inputs.at(0).dtype)),
        threads_(threads) {}

 protected:
  template <class F>
  void over_elements(const F& f) const {
    parallel_range(threads_, count_, kGrain, kLeast,
                   [&](int64_t begin, int64_t end) { f(begin * size_, end - begin); });
  }

  int64_t count_;
  int float_;
  int64_t size_;
  int threads_;
};

const char* at(const KernelArgs& args, size_t i, int64_t byte) { return in<char>(args, i) + byte; }
char* at_out(const KernelArgs& args, size_t i, int64_t byte) { return out<char>(args, i) + byte; }

class Binary2 final : public ElementKernel {
 public:
  Binary2(const KernelSpec& spec, int threads, const Binary (&loops)[kFloats])
      : ElementKernel(spec, threads), loop_(loops[float_]) {}
  void run(const KernelArgs& args) override {
    over_elements([&](int64_t byte, int64_t count) {
      loop_(count, at(args, 0, byte), at(args, 1, byte), at_out(args, 0, byte));
    });
  }

 private:
  Binary loop_;
};

class Activation final : public ElementKernel {
 public:
  Activation(const KernelSpec& spec, int threads)
      : ElementKernel(spec, threads),
        loop_(elementwise_isa().activation[activation_kind(spec)][float_]) {}
  void run(const KernelArgs& args) override {
    over_elements([&](int64_t byte, int64_t count) {
      loop_(count, at(args, 0, byte), at_out(args, 0, byte));
    });
  }

 private:
  Unary loop_;
};

class GluGradKernel final : public ElementKernel {
 public:
  GluGradKernel(const KernelSpec& spec, int threads)
      : ElementKernel(spec, threads),
        loop_(elementwise_isa().glu_grad[activation_kind(spec)][float_]) {}
  void run(const KernelArgs& args) override {
    over_elements([&](int64_t byte, int64_t count) {
      loop_(count, at(args, 0, byte), at(args, 1, byte), at(args, 2, byte), at_out(args, 0, byte),
            at_out(args, 1, byte));
    });
  }

 private:
  GluGrad loop_;
};

class Cast final : public CpuKernel {
 public:
  Cast(const KernelSpec& spec, int threads)
      : count_(spec.inputs.at(0).elements()),
        from_(spec.inputs[0].dtype),
        to_(spec.outputs.at(0).dtype),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int64_t from_size = dtype_size(from_), to_size = dtype_size(to_);
    parallel_range(threads_, count_, kGrain, kLeast, [&](int64_t begin, int64_t end) {
      const void* x = at(args, 0, begin * from_size);
      void* y = at_out(args, 0, begin * to_size);
      if (has_float_index(from_) && has_float_index(to_)) {
        elementwise_isa().convert[float_index(from_)][float_index(to_)](end - begin, x, y);
      } else {
        convert_elements(x, from_, y, to_, end - begin);
      }
    });
  }

 private:
  int64_t count_;
  DType from_, to_;
  int threads_;
};

class Dropout final : public CpuKernel {
 public:
  Dropout(const KernelSpec& spec, int threads)
      : shape_(spec.inputs.at(0).shape),
        size_(dtype_size(spec.inputs[0].dtype)),
        loop_(elementwise_isa().dropout_row[float_index(spec.inputs[0].dtype)]),
        seed_(static_cast<uint64_t>(spec.attrs.get_int("seed"))),
        site_(static_cast<uint64_t>(spec.attrs.get_int("site"))),
        first_position_(spec.attrs.get_int("first_position", 0)),
        first_feature_(spec.attrs.get_int("first_feature", 0)),
        p_(spec.attrs.get_double("p")),
        threads_(threads) {
    WEFT_CHECK(shape_.size() == 3, "cpu", "dropout got {}, expected [B, S, H]", shape_text(shape_));
  }
  void run(const KernelArgs& args) override {
    const auto step = static_cast<uint64_t>(*in<int64_t>(args, 1));
    const int64_t* samples = in<int64_t>(args, 2);
    const uint64_t key = dropout_key(seed_, step, site_);
    const uint32_t threshold = dropout_threshold(p_);
    const auto keep_scale = static_cast<float>(1.0 / (1.0 - p_));
    const int64_t positions = shape_[1], width = shape_[2];
    parallel_range(threads_, shape_[0] * positions, 1, std::max<int64_t>(1, kLeast / (width + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       const int64_t byte = row * width * size_;
                       const char* residual = in(args, 3) == nullptr ? nullptr : at(args, 3, byte);
                       loop_(width, at(args, 0, byte), residual, key,
                             static_cast<uint64_t>(samples[row / positions]),
                             static_cast<uint32_t>(first_position_ + row % positions),
                             first_feature_, threshold, keep_scale, at_out(args, 0, byte));
                     }
                   });
  }

 private:
  Shape shape_;
  int64_t size_;
  DropoutRow loop_;
  uint64_t seed_, site_;
  int64_t first_position_, first_feature_;
  double p_;
  int threads_;
};

}  // namespace

int activation_kind(const KernelSpec& spec) {
  const std::string kind = spec.attrs.get_string("kind");
  if (kind == "gelu") return 0;
  if (kind == "gelu_tanh") return 1;
  WEFT_CHECK(kind == "silu", "cpu", "unknown activation {}", kind);
  return 2;
}

KernelPtr make_add(const KernelSpec& spec, int threads) {
  return std::make_unique<Binary2>(spec, threads, elementwise_isa().add);
}
KernelPtr make_cast(const KernelSpec& spec, int threads) {
  return std::make_unique<Cast>(spec, threads);
}
KernelPtr make_activation(const KernelSpec& spec, int threads) {
  return std::make_unique<Activation>(spec, threads);
}
KernelPtr make_activation_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<Binary2>(spec, threads,
                                   elementwise_isa().activation_grad[activation_kind(spec)]);
}
KernelPtr make_glu(const KernelSpec& spec, int threads) {
  return std::make_unique<Binary2>(spec, threads, elementwise_isa().glu[activation_kind(spec)]);
}
KernelPtr make_glu_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<GluGradKernel>(spec, threads);
}
KernelPtr make_dropout(const KernelSpec& spec, int threads) {
  return std::make_unique<Dropout>(spec, threads);
}

}  // namespace weft::cpu
