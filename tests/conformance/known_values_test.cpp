// A few values of each operator worked out by PyTorch 2 and Hugging Face transformers 5: what ties
// the definitions of ref, which every other check compares with, to the world.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/cases/cases.h"
#include "tests/support/run_kernel.h"

namespace weft::test {
namespace {

class KnownValues : public testing::TestWithParam<const char*> {
 protected:
  /// Runs `op` and expects output `output` within 2e-6 of `values`.
  void expect(OpKind op, const Attrs& attrs, const std::vector<HostTensor>& inputs, int output,
              const std::vector<double>& values) {
    const KernelSpec spec = make_spec(op, attrs, inputs);
    const KernelRun run = run_kernel(*backend_, spec, inputs);
    EXPECT_EQ(run.faults, std::vector<std::string>{});
    const HostTensor& got = run.outputs[static_cast<size_t>(output)];
    ASSERT_EQ(got.size(), static_cast<int64_t>(values.size()));
    for (int64_t i = 0; i < got.size(); ++i) {
      const double value = values[static_cast<size_t>(i)];
      EXPECT_NEAR(got.get(i), value, 2e-6 * std::max(1.0, std::abs(value))) << "element " << i;
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend(GetParam(), {.threads = 2});
};

INSTANTIATE_TEST_SUITE_P(On, KnownValues, testing::Values("ref", "cpu"),
                         [](const auto& param_info) { return std::string(param_info.param); });

HostTensor f32(Shape shape, const std::vector<double>& values) {
  return {{DType::f32, std::move(shape)}, values};
}
HostTensor i32(Shape shape, const std::vector<double>& values) {
  return {{DType::i32, std::move(shape)}, values};
}
Attrs kind(const char* name) { return {{"kind", std::string(name)}}; }

TEST_P(KnownValues, Activation) {
  const HostTensor x = f32({5}, {-2, -0.5, 0, 1, 3});
  expect(OpKind::activation, kind("gelu"), {x}, 0,
         {-0.0455002639, -0.1542687694, 0, 0.8413447461, 2.995950306});
  expect(OpKind::activation, kind("gelu_tanh"), {x}, 0,
         {-0.04540230591, -0.1542859902, 0, 0.8411919906, 2.996362608});
  expect(OpKind::activation, kind("silu"), {x}, 0,
         {-0.238405844, -0.1887703344, 0, 0.7310585786, 2.85772238});
}

TEST_P(KnownValues, GluActivatesTheGate) {
  expect(OpKind::glu, kind("silu"), {f32({2}, {1, 3}), f32({2}, {10, -1})}, 0,
         {7.310585786, -2.85772238});
}

TEST_P(KnownValues, Norms) {
  const HostTensor x = f32({1, 4}, {1, 2, 3, 5}), w = f32({4}, {1, 0.5, 2, -1});
  expect(OpKind::layernorm, {{"eps", 1e-5}}, {x, w, f32({4}, {0, 1, -1, 0.5})}, 0,
         {-1.183213252, 0.7464543031, -0.6619390708, -1.021274181});
  expect(OpKind::rmsnorm, {{"eps", 1e-5}}, {x, w}, 0,
         {0.3202561434, 0.3202561434, 1.92153686, -1.601280717});
}

TEST_P(KnownValues, MatmulInBothForms) {
  const HostTensor x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostTensor bias = f32({2}, {10, 20}), residual = f32({2, 2}, {100, 200, 300, 400});
  expect(OpKind::matmul, {{"transpose_w", true}},
         {x, f32({2, 3}, {1, 0, 2, 0, 1, -1}), bias, residual}, 0, {117, 219, 326, 419});
  expect(OpKind::matmul, {{"transpose_w", false}},
         {x, f32({3, 2}, {1, 0, 0, 1, 2, -1}), bias, residual}, 0, {117, 219, 326, 419});
  expect(OpKind::matmul_wgrad, {{"transpose_w", true}},
         {x, f32({2, 2}, {1, 0, 0, 2}), HostTensor()}, 0, {1, 2, 3, 8, 10, 12});
  expect(OpKind::matmul_wgrad, {{"transpose_w", false}},
         {x, f32({2, 2}, {1, 0, 0, 2}), HostTensor()}, 0, {1, 8, 2, 10, 3, 12});
}

// One sequence of 4, two query heads on one kv head of size 2.
TEST_P(KnownValues, Attention) {
  std::vector<double> ramp;
  for (int i = 0; i < 16; ++i) ramp.push_back(i / 8.0 - 1);
  const HostTensor q = f32({1, 4, 4}, ramp);
  const HostTensor k = f32({1, 4, 2}, {1, 0, 0, 1, 1, 1, -1, 0.5});
  const HostTensor v = f32({1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto attrs = [](int64_t window) -> Attrs {
    return {{"head_dim", int64_t{2}},
            {"num_heads", int64_t{2}},
            {"num_kv_heads", int64_t{1}},
            {"scale", 0.5},
            {"window", window}};
  };
  const HostTensor none;
  expect(OpKind::attention, attrs(0), {q, k, v, none}, 0,
         {1, 2, 1, 2, 2.031239831, 3.031239831, 2.031239831, 3.031239831, 3.041223833, 4.041223833,
          3.126106761, 4.126106761, 3.862251798, 4.862251798, 3.82099016, 4.82099016});
  expect(OpKind::attention, attrs(0), {q, k, v, none}, 1,
         {-0.5, 0.4748853824, 1.140709923, 1.67080172, -0.375, 0.5998853824, 1.310011584,
          1.810368873});
  expect(OpKind::attention, attrs(2), {q, k, v, none}, 0,
         {1, 2, 1, 2, 2.031239831, 3.031239831, 2.031239831, 3.031239831, 4, 5, 4.062418747,
          5.062418747, 5.683164999, 6.683164999, 5.550259448, 6.550259448});
  expect(OpKind::attention, attrs(0), {q, k, v, i32({1, 4}, {0, 0, 1, 1})}, 0,
         {1, 2, 1, 2, 2.031239831, 3.031239831, 2.031239831, 3.031239831, 5, 6, 5, 6, 5.683164999,
          6.683164999, 5.550259448, 6.550259448});
}

TEST_P(KnownValues, QueryHeadsShareKvHeadsInRuns) {
  // With one position each query head returns the value of its kv head: 0, 0, 1, 1.
  const Attrs attrs = {{"head_dim", int64_t{1}},
                       {"num_heads", int64_t{4}},
                       {"num_kv_heads", int64_t{2}},
                       {"scale", 1.0},
                       {"window", int64_t{0}}};
  expect(
      OpKind::attention, attrs,
      {f32({1, 1, 4}, {1, 1, 1, 1}), f32({1, 1, 2}, {1, 1}), f32({1, 1, 2}, {5, 6}), HostTensor()},
      0, {5, 5, 6, 6});
}

TEST_P(KnownValues, CrossEntropy) {
  const HostTensor logits = f32({1, 3, 3}, {1, 2, 3, 0, 0, 0, 5, -1, 0});
  const HostTensor labels = i32({1, 3}, {2, -100, 1});
  expect(OpKind::cross_entropy, {}, {logits, labels}, 0, {6.416780449});
  expect(OpKind::cross_entropy, {}, {logits, labels}, 1, {3.407605964, 1.098612289, 5.009174485});
}

TEST_P(KnownValues, RopeTurnsHalves) {
  const HostTensor table =
      f32({1, 1, 4}, {std::cos(0.5), std::cos(0.25), std::sin(0.5), std::sin(0.25)});
  expect(OpKind::rope, {{"head_dim", int64_t{4}}}, {f32({1, 1, 4}, {1, 2, 3, 4}), table}, 0,
         {-0.5606940985, 0.9482089877, 3.11217308, 4.370457649});
}

TEST_P(KnownValues, RopeFrequenciesOfEachType) {
  const std::vector<double> llama3 = {1,
                                      0.4403666258,
                                      0.1939227581,
                                      0.08539710194,
                                      0.0376060307,
                                      0.01656044088,
                                      0.007292665076,
                                      0.003211446106,
                                      0.000524846022,
                                      7.784655463e-05,
                                      3.428102355e-05,
                                      1.509621779e-05,
                                      6.647869668e-06,
                                      2.927499736e-06,
                                      1.289173156e-06,
                                      5.677088097e-07};
  const auto table_of = [](const std::vector<double>& frequencies, double position) {
    std::vector<double> row;
    for (const double f : frequencies) row.push_back(std::cos(position * f));
    for (const double f : frequencies) row.push_back(std::sin(position * f));
    return row;
  };
  const auto attrs = [](const char* type, double theta) -> Attrs {
    return {{"head_dim", int64_t{32}},
            {"theta", theta},
            {"type", std::string(type)},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position", int64_t{8192}}};
  };
  std::vector<double> plain, linear;
  for (int i = 0; i < 16; ++i) {
    plain.push_back(std::pow(10000.0, -i / 16.0));
    linear.push_back(plain.back() / 8);
  }
  const HostTensor position = i32({1, 1}, {3});
  expect(OpKind::rope_table, attrs("default", 1e4), {position}, 0, table_of(plain, 3));
  expect(OpKind::rope_table, attrs("linear", 1e4), {position}, 0, table_of(linear, 3));
  expect(OpKind::rope_table, attrs("llama3", 5e5), {position}, 0, table_of(llama3, 3));
}

TEST_P(KnownValues, ThreeUpdates) {
  const auto gradient = [](int step) {
    return f32({3}, {0.5 * step, -0.1, step % 2 == 1 ? 2.0 : -2.0});
  };
  const HostTensor factor = f32({1}, {1}), apply = i32({1}, {1});
  const Attrs adamw = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  const Attrs sgd = {{"momentum", 0.9}, {"weight_decay", 0.1}};
  HostTensor w = f32({3}, {1, -2, 0.5}), m = f32({3}, {0, 0, 0}), v = m, buffer = m, w_sgd = w;
  for (int step = 1; step <= 3; ++step) {
    const HostTensor hyper = f32({3}, {0.1, 1 - std::pow(0.9, step), 1 - std::pow(0.95, step)});
    const std::vector<HostTensor> adamw_in = {w, m, v, gradient(step), hyper, factor, apply};
    const std::vector<HostTensor> sgd_in = {w_sgd, gradient(step), buffer, hyper, factor, apply};
    const auto a = run_kernel(*backend_, make_spec(OpKind::adamw, adamw, adamw_in), adamw_in);
    const auto s = run_kernel(*backend_, make_spec(OpKind::sgd, sgd, sgd_in), sgd_in);
    w = a.outputs[0], m = a.outputs[1], v = a.outputs[2];
    w_sgd = s.outputs[0], buffer = s.outputs[1];
  }
  const double expected[] = {0.6829974055, -1.643587947, 0.3587706685};
  const double expected_sgd[] = {0.4717740119, -1.833137035, 0.1157694831};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(w.get(i), expected[i], 1e-6);
    EXPECT_NEAR(w_sgd.get(i), expected_sgd[i], 1e-6);
  }
}

}  // namespace
}  // namespace weft::test
