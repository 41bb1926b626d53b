// Every case of the table on every backend that computes, in every dtype it takes: values against
// ref, memory outside the outputs untouched, and the same bits when an operand shares the memory
// of an output as the operator allows.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "tests/cases/cases.h"
#include "tests/support/run_kernel.h"
#include "weft/ir/graph.h"

namespace weft::test {
namespace {

struct Run {
  const OpCase* op_case;
  std::string backend;
  DType dtype;
};

void PrintTo(const Run& run, std::ostream* stream) { *stream << run.op_case->name; }

std::string run_name(const testing::TestParamInfo<Run>& info) {
  return fmt::format("{}_{}_{}", info.param.op_case->name, info.param.backend,
                     dtype_name(info.param.dtype));
}

/// Every backend takes every compute dtype, which the tests below demand; only ref takes f64.
std::vector<Run> all_runs() {
  std::vector<Run> runs;
  for (const OpCase& op_case : all_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      runs.push_back({&op_case, "ref", dtype});
      if (op_case.attrs.get_bool("wide", false)) continue;  // f64 tables belong to f64 compute
      runs.push_back({&op_case, "cpu", dtype});
    }
  }
  return runs;
}

/// The alias sets to try: each addend and each optional alias alone, then all addends together.
std::vector<std::vector<Alias>> alias_sets(const KernelSpec& spec) {
  const OpDef& def = op_def(spec.op);
  std::vector<std::vector<Alias>> sets;
  std::vector<Alias> addends;
  const auto fits = [&](int input, int output) {
    const TensorType& in = spec.inputs[static_cast<size_t>(input)];
    const TensorType& out = spec.outputs[static_cast<size_t>(output)];
    return in.present() && out.present() && in.bytes() == out.bytes();
  };
  for (const OpAddend& addend : def.addends) {
    if (!fits(addend.input, addend.output)) continue;
    sets.push_back({{addend.input, addend.output}});
    addends.push_back({addend.input, addend.output});
  }
  if (addends.size() > 1) sets.push_back(addends);
  for (const OpAlias& alias : def.aliases) {
    if (!alias.required && fits(alias.input, alias.output)) {
      sets.push_back({{alias.input, alias.output}});
    }
  }
  return sets;
}

/// The kernel in f64 on the same input values, its outputs rounded to the types of `spec`: what
/// ref itself is compared with.
std::vector<HostTensor> run_in_f64(Backend& ref, const KernelSpec& spec,
                                   const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> wide;
  for (const HostTensor& input : inputs) wide.push_back(converted(input, DType::f64));
  std::vector<HostTensor> outputs =
      run_kernel(ref, make_spec(spec.op, spec.attrs, wide), wide).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = converted(outputs[i], spec.outputs[i].dtype);
  }
  return outputs;
}

class Conformance : public testing::TestWithParam<Run> {
 protected:
  void SetUp() override {
    ref_ = make_backend("ref", {});
    backend_ = make_backend(GetParam().backend, {.threads = 2});
  }
  void TearDown() override {
    if (!HasFailure()) return;
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    fmt::print("rerun: weft_conformance_test --gtest_filter={}.{}\n", info->test_suite_name(),
               info->name());
  }

  std::unique_ptr<Backend> ref_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(Conformance, Values) {
  const auto& [op_case, backend, dtype] = GetParam();
  const std::vector<HostTensor> inputs = make_inputs(*op_case, dtype, *ref_);
  const KernelSpec spec = make_spec(op_case->op, op_case->attrs, inputs);
  ASSERT_TRUE(backend_->supports(spec));
  const KernelRun run = run_kernel(*backend_, spec, inputs);
  EXPECT_EQ(run.faults, std::vector<std::string>{});
  const bool is_ref = backend == "ref";
  const std::vector<HostTensor> expected =
      is_ref ? run_in_f64(*ref_, spec, inputs) : run_kernel(*ref_, spec, inputs).outputs;
  // Updates run in f32 by definition, so ref differs from f64 there.
  const Tolerance tolerance = is_ref ? Tolerance::elementwise : op_case->tolerance;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    EXPECT_EQ(difference(run.outputs[i], expected[i], tolerance, dtype), "")
        << "output " << op_def(op_case->op).outputs[i];
  }
}

TEST_P(Conformance, SharedMemoryGivesTheSameBits) {
  const auto& [op_case, backend, dtype] = GetParam();
  const std::vector<HostTensor> inputs = make_inputs(*op_case, dtype, *ref_);
  const KernelSpec spec = make_spec(op_case->op, op_case->attrs, inputs);
  ASSERT_TRUE(backend_->supports(spec));
  const KernelRun apart = run_kernel(*backend_, spec, inputs);
  for (const std::vector<Alias>& aliases : alias_sets(spec)) {
    const KernelRun shared = run_kernel(*backend_, spec, inputs, aliases);
    EXPECT_EQ(shared.faults, std::vector<std::string>{});
    for (size_t i = 0; i < apart.outputs.size(); ++i) {
      EXPECT_EQ(difference(shared.outputs[i], apart.outputs[i], Tolerance::exact, dtype), "")
          << "output " << i << " with input " << aliases[0].first << " in the memory of output "
          << aliases[0].second;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Conformance, testing::ValuesIn(all_runs()), run_name);

// What an addend input means, for every operator that has one: the output without it, plus it.
TEST(Addends, AreAddedToTheirOutput) {
  const std::unique_ptr<Backend> ref = make_backend("ref", {});
  std::set<std::pair<OpKind, int>> seen;
  for (const OpCase& op_case : all_cases()) {
    std::vector<HostTensor> inputs = make_inputs(op_case, DType::f64, *ref);
    const KernelSpec spec = make_spec(op_case.op, op_case.attrs, inputs);
    const std::vector<HostTensor> with = run_kernel(*ref, spec, inputs).outputs;
    for (const OpAddend& addend : op_def(op_case.op).addends) {
      const HostTensor added = inputs[static_cast<size_t>(addend.input)];
      if (!added.present()) continue;
      seen.insert({op_case.op, addend.input});
      std::vector<HostTensor> without = inputs;
      without[static_cast<size_t>(addend.input)] = HostTensor();
      HostTensor sum = run_kernel(*ref, make_spec(op_case.op, op_case.attrs, without), without)
                           .outputs[static_cast<size_t>(addend.output)];
      for (int64_t i = 0; i < sum.size(); ++i) sum.set(i, sum.get(i) + added.get(i));
      EXPECT_EQ(difference(with[static_cast<size_t>(addend.output)], sum, Tolerance::elementwise,
                           DType::f64),
                "")
          << op_case.name << " input "
          << op_def(op_case.op).inputs[static_cast<size_t>(addend.input)];
    }
  }
  for (int i = 0; i < kNumOps; ++i) {
    for (const OpAddend& addend : op_def(static_cast<OpKind>(i)).addends) {
      EXPECT_TRUE(seen.contains({static_cast<OpKind>(i), addend.input}))
          << "no case gives " << op_name(static_cast<OpKind>(i)) << " its addend " << addend.input;
    }
  }
}

TEST(CaseTable, EveryOperatorHasACase) {
  std::set<OpKind> seen;
  for (const OpCase& op_case : all_cases()) seen.insert(op_case.op);
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpKind>(i);
    if (op_def(op).collective || op_def(op).transfer) continue;  // no backend runs it
    EXPECT_TRUE(seen.contains(op)) << op_name(op);
  }
}

TEST(CaseTable, NamesAreUniqueAndStartWithTheOperator) {
  std::set<std::string> names;
  for (const OpCase& op_case : all_cases()) {
    EXPECT_TRUE(names.insert(op_case.name).second) << op_case.name;
    EXPECT_TRUE(op_case.name.starts_with(op_name(op_case.op))) << op_case.name;
  }
}

// The checks above can fail: they see a kernel that writes past its output or changes an input.
class SpoiledKernel final : public Kernel {
 public:
  explicit SpoiledKernel(int fault) : fault_(fault) {}
  void run(const KernelArgs& args) override {
    if (fault_ == 0) static_cast<std::byte*>(args.outputs[0])[4 * 8] = std::byte{1};
    if (fault_ == 1) const_cast<float*>(static_cast<const float*>(args.inputs[1]))[3] = 7;
  }

 private:
  int fault_;
};

class SpoiledBackend final : public Backend {
 public:
  explicit SpoiledBackend(int fault) : fault_(fault), ref_(make_backend("ref", {})) {}
  bool supports(const KernelSpec&) const override { return true; }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
  std::string_view name() const override { return "spoiled"; }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override { return ref_->allocate(bytes); }
  std::unique_ptr<Kernel> prepare(const KernelSpec&) override {
    return std::make_unique<SpoiledKernel>(fault_);
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    ref_->copy_to_device(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    ref_->copy_to_host(host, device, bytes);
  }

 private:
  int fault_;
  std::unique_ptr<Backend> ref_;
};

TEST(RunKernel, SeesWritesOutsideTheOutputs) {
  const std::vector<HostTensor> inputs(2, HostTensor(TensorType{DType::f32, {8}}));
  const KernelSpec spec = make_spec(OpKind::add, {}, inputs);
  SpoiledBackend past_output(0), over_input(1);
  EXPECT_EQ(run_kernel(past_output, spec, inputs).faults,
            std::vector<std::string>{"output 0 (32 bytes): byte 32 was changed"});
  EXPECT_EQ(run_kernel(over_input, spec, inputs).faults,
            std::vector<std::string>{"input 1 (32 bytes): byte 14 was changed"});
}

TEST(Tolerance, SeesWrongValues) {
  const TensorType type{DType::f32, {3}};
  const HostTensor expected(type, {1, 2, 3});
  EXPECT_EQ(difference(expected, expected, Tolerance::exact, DType::f32), "");
  EXPECT_EQ(difference(HostTensor(type, {1, 2, 3.000001}), expected, Tolerance::sum, DType::f32),
            "");
  EXPECT_NE(difference(HostTensor(type, {1, 2, 3.001}), expected, Tolerance::fused, DType::f32),
            "");
  EXPECT_NE(difference(HostTensor(type, {1, 2, NAN}), expected, Tolerance::fused, DType::bf16), "");
  EXPECT_NE(
      difference(HostTensor(TensorType{DType::f64, {3}}), expected, Tolerance::sum, DType::f32),
      "");
}

}  // namespace
}  // namespace weft::test
