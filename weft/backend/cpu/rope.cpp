// rope_table and rope. Angles are computed in double.
#include <cmath>
#include <cstring>
#include <numbers>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/backend/cpu/rope_isa.h"

namespace weft::cpu {
namespace {

/// Angle per position of frequency pair `i` of head_dim / 2.
double inverse_frequency(const Attrs& attrs, int64_t i, int64_t head_dim) {
  const double frequency = std::pow(attrs.get_double("theta"),
                                    -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  const std::string type = attrs.get_string("type", "default");
  if (type == "default") return frequency;
  const double factor = attrs.get_double("factor");
  if (type == "linear") return frequency / factor;
  WEFT_CHECK(type == "llama3", "cpu.rope_table", "unknown type {}", type);
  const double low = attrs.get_double("low_freq_factor");
  const double high = attrs.get_double("high_freq_factor");
  const double original = attrs.get_double("original_max_position");
  const double turns = original * frequency / (2.0 * std::numbers::pi);  // within the old context
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const double smooth = (turns - low) / (high - low);
  return (1.0 - smooth) * frequency / factor + smooth * frequency;
}

class RopeTable final : public CpuKernel {
 public:
  RopeTable(const KernelSpec& spec, int threads)
      : sequences_(spec.inputs.at(0).shape.at(0)),
        positions_(spec.inputs[0].shape.at(1)),
        head_dim_(spec.attrs.get_int("head_dim")),
        threads_(threads) {
    for (int64_t i = 0; i < head_dim_ / 2; ++i) {
      frequencies_.push_back(inverse_frequency(spec.attrs, i, head_dim_));
    }
  }
  void run(const KernelArgs& args) override {
    const int32_t* positions = in<int32_t>(args, 0);
    float* table = out<float>(args, 0);
    const int64_t half = head_dim_ / 2;
    // Sequences mostly repeat the positions of the one before; those rows are copied.
    parallel_range(threads_, positions_, 1, std::max<int64_t>(1, 512 / (half + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t b = 0; b < sequences_; ++b) {
                       for (int64_t s = begin; s < end; ++s) {
                         const int64_t t = b * positions_ + s;
                         float* row = table + t * head_dim_;
                         if (b > 0 && positions[t] == positions[t - positions_]) {
                           std::memcpy(row, row - positions_ * head_dim_,
                                       static_cast<size_t>(head_dim_) * 4);
                           continue;
                         }
                         for (int64_t i = 0; i < half; ++i) {
                           const double angle = static_cast<double>(positions[t]) * frequencies_[i];
                           row[i] = static_cast<float>(std::cos(angle));
                           row[half + i] = static_cast<float>(std::sin(angle));
                         }
                       }
                     }
                   });
  }

 private:
  int64_t sequences_, positions_, head_dim_;
  int threads_;
  std::vector<double> frequencies_;
};

class Rope final : public CpuKernel {
 public:
  Rope(const KernelSpec& spec, int threads)
      : tokens_(num_rows(spec.inputs.at(0).shape)),
        width_(spec.inputs[0].shape.back()),
        head_dim_(spec.attrs.get_int("head_dim")),
        inverse_(spec.attrs.get_bool("inverse", false)),
        float_(float_index(spec.inputs[0].dtype)),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int64_t size = float_ != 0 ? 2 : 4;
    const char* x = in<char>(args, 0);
    const float* table = in<float>(args, 1);
    char* y = out<char>(args, 0);
    parallel_range(threads_, tokens_, 1, std::max<int64_t>(1, 8192 / (width_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       rope_isa().rotate[float_](width_ / head_dim_, head_dim_,
                                                 x + t * width_ * size, table + t * head_dim_,
                                                 inverse_, y + t * width_ * size);
                     }
                   });
  }

 private:
  int64_t tokens_, width_, head_dim_;
  bool inverse_;
  int float_;
  int threads_;
};

}  // namespace

KernelPtr make_rope_table(const KernelSpec& spec, int threads) {
  return std::make_unique<RopeTable>(spec, threads);
}
KernelPtr make_rope(const KernelSpec& spec, int threads) {
  return std::make_unique<Rope>(spec, threads);
}

}  // namespace weft::cpu
