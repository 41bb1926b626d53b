// What the benchmarks of kernels share: timing in turns, aligned memory, one kernel with operands.
#pragma once

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "weft/backend/backend.h"
#include "weft/ops/op_kind.h"

namespace weft::bench {

/// One thread is timed by its processor time, so that a busy machine disturbs less.
inline bool time_processor = false;

inline double now() {
  timespec time{};
  clock_gettime(time_processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double seconds_of(const std::function<void()>& work) {
  const double start = now();
  work();
  return now() - start;
}

/// Least time of several runs, at least `least` of them and about half a second.
inline double best_seconds(const std::function<void()>& work, int least = 3) {
  work();  // first touch, JIT
  double best = 1e30, total = 0;
  for (int run = 0; run < least || (total < 0.5 && run < 200); ++run) {
    const double t = seconds_of(work);
    best = std::min(best, t);
    total += t;
  }
  return best;
}

/// The two sides of a ratio, measured in turns so that both see the same machine.
inline std::pair<double, double> best_of_both(const std::function<void()>& a,
                                              const std::function<void()>& b) {
  a(), b();  // first touch, JIT
  double best_a = 1e30, best_b = 1e30, total = 0;
  for (int run = 0; run < 3 || (total < 2 && run < 400); ++run) {
    const double t_a = seconds_of(a), t_b = seconds_of(b);
    best_a = std::min(best_a, t_a), best_b = std::min(best_b, t_b);
    total += t_a + t_b;
  }
  return {best_a, best_b};
}

/// Aligned memory for operands and workspaces.
class Memory {
 public:
  explicit Memory(Backend& backend, int64_t bytes) : arena_(backend.allocate(bytes)) {
    std::memset(arena_->data(), 0, static_cast<size_t>(bytes));
  }
  void* data() const { return arena_->data(); }

 private:
  std::unique_ptr<DeviceArena> arena_;
};

/// One kernel with operands of its own, values small and harmless.
class Bound {
 public:
  Bound(Backend& backend, KernelSpec spec, std::vector<std::pair<size_t, size_t>> in_place = {})
      : kernel_(backend.prepare(spec)), workspace_(backend, backend.workspace_bytes(spec)) {
    for (const TensorType& type : spec.inputs) in_.push_back(make(backend, type));
    for (const TensorType& type : spec.outputs) out_.push_back(make(backend, type));
    for (const auto& [output, input] : in_place) out_[output] = const_cast<void*>(in_[input]);
  }
  void* input(size_t i) { return const_cast<void*>(in_[i]); }
  void run() { kernel_->run({in_, out_, workspace_.data()}); }

 private:
  void* make(Backend& backend, const TensorType& type) {
    if (!type.present()) return nullptr;
    memory_.emplace_back(backend, type.bytes());
    void* data = memory_.back().data();
    if (type.dtype == DType::f32) {
      float* values = static_cast<float*>(data);
      for (int64_t i = 0; i < type.elements(); ++i) {
        values[i] = 0.01f * static_cast<float>(i * 7919 % 97 - 48);
      }
    }
    if (type.dtype == DType::bf16) {
      BF16* values = static_cast<BF16*>(data);
      for (int64_t i = 0; i < type.elements(); ++i) {
        values[i] = to_bf16(0.01f * static_cast<float>(i * 7919 % 97 - 48));
      }
    }
    return data;
  }

  std::unique_ptr<Kernel> kernel_;
  Memory workspace_;
  std::vector<Memory> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

}  // namespace weft::bench
