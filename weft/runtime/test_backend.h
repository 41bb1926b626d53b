// A backend whose kernels compute with scramble() of plan/test_graphs.h. Included by tests only.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "weft/backend/backend.h"
#include "weft/plan/test_graphs.h"

namespace weft {

class TestArena : public DeviceArena {
 public:
  explicit TestArena(int64_t bytes)
      : bytes_(bytes), data_(new (std::align_val_t{4096}) Page[pages()]) {}
  std::byte* data() override { return data_[0].bytes; }
  int64_t bytes() const override { return bytes_; }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  size_t pages() const { return static_cast<size_t>(bytes_ / 4096 + 1); }
  int64_t bytes_;
  std::unique_ptr<Page[]> data_;
};

/// Computes with scramble() and notes what it did.
class TestBackend : public Backend {
 public:
  std::string_view name() const override { return "test"; }
  bool supports(const KernelSpec&) const override { return true; }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return TestSupport().workspace_bytes(spec);
  }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override {
    return std::make_unique<TestArena>(bytes);
  }
  std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }

  int prepared = 0;
  OpKind failing = static_cast<OpKind>(kNumOps);
  std::function<void()> failure = [] { throw std::runtime_error("broken"); };
  std::mutex mutex;
  std::vector<OpKind> executed;
};

class TestKernel : public Kernel {
 public:
  TestKernel(TestBackend& backend, KernelSpec spec) : backend_(backend), spec_(std::move(spec)) {}

  void run(const KernelArgs& args) override {
    {
      const std::lock_guard lock(backend_.mutex);
      backend_.executed.push_back(spec_.op);
    }
    if (spec_.op == backend_.failing) backend_.failure();
    std::vector<std::vector<std::byte>> inputs;  // copied first: outputs may lie on them
    for (size_t i = 0; i < spec_.inputs.size(); ++i) {
      const auto* from = static_cast<const std::byte*>(args.inputs[i]);
      inputs.emplace_back(from, from + spec_.inputs[i].bytes());
    }
    if (args.workspace != nullptr) std::memset(args.workspace, 0xab, 100);
    for (size_t i = 0; i < spec_.outputs.size(); ++i) {
      scramble(spec_.op, inputs, static_cast<int>(i), static_cast<std::byte*>(args.outputs[i]),
               spec_.outputs[i].bytes());
    }
  }

 private:
  TestBackend& backend_;
  KernelSpec spec_;
};

inline std::unique_ptr<Kernel> TestBackend::prepare(const KernelSpec& spec) {
  ++prepared;
  return std::make_unique<TestKernel>(*this, spec);
}

}  // namespace weft
