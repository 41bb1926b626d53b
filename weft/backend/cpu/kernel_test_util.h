// Runs one kernel on the cpu backend and on ref with the same random operands and compares.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "weft/backend/backend_entries.h"
#include "weft/base/dtype.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/ops/op_kind.h"

namespace weft::cpu {

/// Restricts the kernels to the portable fallback when the test run asks for it; must happen before
/// the first kernel is made.
bool use_portable_kernels_if_asked();
inline const bool kPortable = use_portable_kernels_if_asked();

/// 64-byte aligned bytes with guard zones that must stay untouched.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t bytes = 0) : bytes_(bytes) {
    const auto total = static_cast<size_t>((bytes + 2 * kGuard + 63) / 64 * 64);
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(64, total)));
    std::memset(memory_.get(), 0xA5, total);
  }
  void* data() const { return memory_.get() + kGuard; }
  int64_t bytes() const { return bytes_; }
  bool intact() const {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (memory_.get()[i] != 0xA5 || memory_.get()[kGuard + bytes_ + i] != 0xA5) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  int64_t bytes_;
  std::unique_ptr<unsigned char, Free> memory_;
};

struct Operand {
  TensorType type;
  std::vector<double> values;  // floating; empty = random in [-1, 1]
  std::vector<int64_t> integers;
};

inline Operand random_operand(DType dtype, Shape shape) {
  return {{dtype, std::move(shape)}, {}, {}};
}
inline Operand absent() { return {}; }
inline Operand ints(DType dtype, Shape shape, std::vector<int64_t> values) {
  return {{dtype, std::move(shape)}, {}, std::move(values)};
}
inline Operand floats(Shape shape, std::vector<double> values, DType dtype = DType::f32) {
  return {{dtype, std::move(shape)}, std::move(values), {}};
}

struct KernelCase {
  OpKind op{};
  Attrs attrs;
  std::vector<Operand> inputs;
  std::vector<TensorType> outputs;
  std::vector<std::pair<int, int>> in_place;  // output -> input whose memory it uses
};

class KernelRun {
 public:
  KernelRun(Backend& backend, const KernelCase& test, uint64_t seed = 1) : test_(test) {
    KernelSpec spec{test.op, test.attrs, {}, test.outputs};
    for (const Operand& operand : test.inputs) spec.inputs.push_back(operand.type);
    EXPECT_TRUE(backend.supports(spec));
    uint64_t stream = seed * 1000;
    for (const Operand& operand : test.inputs) inputs_.push_back(fill(operand, ++stream));
    for (const TensorType& type : test.outputs) outputs_.emplace_back(type.bytes());
    GuardedBytes workspace(backend.workspace_bytes(spec));
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      in.push_back(test.inputs[i].type.present() ? inputs_[i].data() : nullptr);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      out.push_back(test.outputs[i].present() ? outputs_[i].data() : nullptr);
    }
    for (const auto& [output, input] : test.in_place) {
      in_place_at_.resize(outputs_.size(), -1);
      in_place_at_[static_cast<size_t>(output)] = input;
      out[static_cast<size_t>(output)] = inputs_[static_cast<size_t>(input)].data();
    }
    backend.prepare(spec)->run({in, out, workspace.data()});
    EXPECT_TRUE(workspace.intact()) << "the workspace was overrun";
    for (const GuardedBytes& bytes : inputs_) EXPECT_TRUE(bytes.intact());
    for (const GuardedBytes& bytes : outputs_) EXPECT_TRUE(bytes.intact());
  }

  const void* output(size_t i) const {
    const int from = i < in_place_at_.size() ? in_place_at_[i] : -1;
    return from >= 0 ? inputs_[static_cast<size_t>(from)].data() : outputs_[i].data();
  }
  double value(size_t i, int64_t element) const {
    const DType dtype = test_.outputs[i].dtype;
    if (dtype == DType::i32) return static_cast<const int32_t*>(output(i))[element];
    return load_element(output(i), dtype, element);
  }

 private:
  static GuardedBytes fill(const Operand& operand, uint64_t stream) {
    const TensorType& type = operand.type;
    GuardedBytes bytes(type.bytes());
    const RngStream random(stream);
    for (int64_t i = 0; i < type.elements(); ++i) {
      if (type.dtype == DType::i32) {
        static_cast<int32_t*>(bytes.data())[i] =
            static_cast<int32_t>(operand.integers[static_cast<size_t>(i)]);
      } else if (type.dtype == DType::i64) {
        static_cast<int64_t*>(bytes.data())[i] = operand.integers[static_cast<size_t>(i)];
      } else {
        const double value = operand.values.empty()
                                 ? 2.0 * random.uniform(static_cast<uint64_t>(i)) - 1.0
                                 : operand.values[static_cast<size_t>(i)];
        store_element(bytes.data(), type.dtype, i, value);
      }
    }
    return bytes;
  }

  const KernelCase& test_;
  std::vector<GuardedBytes> inputs_, outputs_;
  std::vector<int> in_place_at_;
};

/// Runs the case on ref and on cpu (1 and 3 threads) and compares: the relative L2 error of each
/// output stays below `f32` (plus 2^-8 when the output, or `inside`, the dtype of values between
/// the fused stages of the operator, is bf16, 2^-11 for f16), and the team size changes no bit.
inline void expect_like_ref(const KernelCase& test, double f32 = 2e-6, DType inside = DType::f32) {
  const auto ref = make_ref_backend({});
  const auto one = make_cpu_backend({.threads = 1});
  const auto three = make_cpu_backend({.threads = 3});
  const KernelRun expected(*ref, test), got(*one, test), team(*three, test);
  for (size_t i = 0; i < test.outputs.size(); ++i) {
    if (!test.outputs[i].present()) continue;
    double error = 0, norm = 0;
    for (int64_t e = 0; e < test.outputs[i].elements(); ++e) {
      const double want = expected.value(i, e), have = got.value(i, e);
      ASSERT_EQ(std::isfinite(want), std::isfinite(have)) << "output " << i << " element " << e;
      if (!std::isfinite(want)) continue;
      error += (want - have) * (want - have);
      norm += want * want;
    }
    const auto rounding = [](DType dtype) {
      return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0.0;
    };
    const double limit = f32 + std::max(rounding(test.outputs[i].dtype), rounding(inside));
    EXPECT_LE(std::sqrt(error), limit * std::sqrt(norm) + 1e-12) << "output " << i;
    EXPECT_EQ(
        0, std::memcmp(got.output(i), team.output(i), static_cast<size_t>(test.outputs[i].bytes())))
        << "output " << i << " depends on the number of threads";
  }
}

}  // namespace weft::cpu
