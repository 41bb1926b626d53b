// A test that runs single kernels on each backend that computes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/run_kernel.h"
#include "weft/ops/op_kind.h"

namespace weft::test {

/// Parameter: the name of the backend.
class OnBackends : public testing::TestWithParam<const char*> {
 protected:
  /// The outputs of `op`; fails the test when the kernel does more than its task.
  std::vector<HostTensor> run(OpKind op, const Attrs& attrs,
                              const std::vector<HostTensor>& inputs) {
    const KernelSpec spec = make_spec(op, attrs, inputs);
    KernelRun run = run_kernel(*backend_, spec, inputs);
    EXPECT_EQ(run.faults, std::vector<std::string>{});
    return std::move(run.outputs);
  }

  std::unique_ptr<Backend> backend_ = make_backend(GetParam(), {.threads = 2});
};

#define WEFT_ON_BACKENDS(fixture)                                      \
  INSTANTIATE_TEST_SUITE_P(On, fixture, testing::Values("ref", "cpu"), \
                           [](const auto& param_info) { return std::string(param_info.param); })

}  // namespace weft::test
