// Compiled plans against Hugging Face transformers: logits, loss, every gradient, ten AdamW steps,
// five SGD steps, import and export. tests/golden/README.md says how the values were made.
#include "tests/support/golden.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/support/model_run.h"
#include "weft/checkpoint/hf_export.h"
#include "weft/checkpoint/hf_import.h"
#include "weft/checkpoint/session_store.h"
#include "weft/compile/pipeline.h"
#include "weft/compile/step_graph.h"
#include "weft/io/test_folder.h"
#include "weft/runtime/session.h"
#include "weft/train/feed.h"

namespace weft::test {
namespace {

constexpr double kGradientTolerance = 1e-5;
constexpr double kTrainingTolerance = 1e-4;

/// A golden model in a session, always on its own batch.
class GoldenRun {
 public:
  GoldenRun(const Golden& golden, const Config& config)
      : golden_(golden), run_(golden.spec, golden.folder, config) {}

  double step(int64_t number) {
    return run_.step(number, golden_.at("input_ids"), golden_.at("shifted_labels"));
  }
  double eval_loss() {
    return run_.eval_loss_sum(golden_.at("input_ids"), golden_.at("shifted_labels")) /
           golden_.number("valid_labels");
  }
  HostTensor logits() { return run_.logits(golden_.at("input_ids")); }
  double norm() { return run_.norm(); }
  Tensors gradients() { return run_.gradients(); }
  Tensors weights() { return run_.weights(); }
  StepRecord experts() { return run_.experts(); }
  /// Balance losses of the last step by layer: means over the sequences.
  std::vector<double> balance();

 private:
  const Golden& golden_;
  ModelRun run_;
};

std::vector<double> GoldenRun::balance() {
  std::vector<double> layers;
  const auto sequences = static_cast<double>(golden_.at("input_ids").type.shape[0]);
  for (int64_t layer = 0; layer < golden_.spec.num_layers; ++layer) {
    if (!is_sparse(golden_.spec, layer)) continue;
    const auto stats = read_values(run_.session(), "train", router_stats_output(layer));
    layers.push_back(stats.at(static_cast<size_t>(golden_.spec.moe.num_experts) + 1) / sequences);
  }
  return layers;
}

/// Loads of experts and balance losses per layer, those of the golden file as a mean over the
/// sequences.
void expect_routing(GoldenRun& run, const Golden& golden) {
  const HostTensor& losses = golden.at("aux_losses");
  const HostTensor& tokens = golden.at("expert_tokens");
  const StepRecord record = run.experts();
  const std::vector<double> balance = run.balance();
  const int64_t layers = losses.type.shape[0], sequences = losses.type.shape[1];
  ASSERT_EQ(static_cast<int64_t>(balance.size()), layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    double mean = 0;
    for (int64_t b = 0; b < sequences; ++b) mean += losses.get(layer * sequences + b);
    mean /= static_cast<double>(sequences);
    EXPECT_NEAR(balance[static_cast<size_t>(layer)], mean, kGradientTolerance * mean);
    const auto& load = record.expert_tokens.at(static_cast<size_t>(layer));
    for (int64_t e = 0; e < tokens.type.shape[1]; ++e) {
      EXPECT_EQ(static_cast<double>(load[static_cast<size_t>(e)]),
                tokens.get(layer * tokens.type.shape[1] + e))
          << "layer " << layer << " expert " << e;
    }
  }
  EXPECT_EQ(record.dropped_tokens, 0);
}

/// Compares the tensors called NAME + suffix in the golden file with `got`.
void expect_tensors(const Tensors& got, const Golden& golden, const std::string& suffix,
                    double tolerance) {
  size_t compared = 0;
  for (const auto& [key, expected] : golden.expected) {
    if (!key.ends_with(suffix)) continue;
    const std::string name = key.substr(0, key.size() - suffix.size());
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_LE(relative_error(got.at(name), expected), tolerance) << key;
    ++compared;
  }
  EXPECT_EQ(compared, got.size());
  EXPECT_GT(compared, 0u);
}

/// The gradient of a key bias of gpt2 is zero in exact arithmetic (softmax ignores what is added to
/// all scores of a row), and Adam turns its rounding noise into steps. It has no effect on
/// anything: the expected value takes its place, if it moved no farther than Adam can move it.
void settle_key_biases(Tensors& got, const Golden& golden, double reach) {
  if (golden.spec.family != Family::gpt2) return;
  const int64_t hidden = golden.spec.hidden_size;
  for (auto& [name, tensor] : got) {
    if (!name.ends_with("attn.c_attn.bias")) continue;
    const HostTensor& expected = golden.at(name + "@adamw");
    for (int64_t i = hidden; i < 2 * hidden; ++i) {
      EXPECT_LE(std::abs(tensor.get(i) - expected.get(i)), reach) << name << " " << i;
      tensor.set(i, expected.get(i));
    }
  }
}

struct Case {
  std::string model;
  std::string backend;
  std::string compute;
  int64_t accumulation;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const std::string& model : golden_names()) {
    result.push_back({model, "ref", "fp64", 3});
    result.push_back({model, "ref", "fp32", 1});
    result.push_back({model, "cpu", "fp32", 1});
    result.push_back({model, "cpu", "fp32", 3});
  }
  return result;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}_{}_{}", c.model, c.backend, c.compute, c.accumulation);
}

class GoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  Config config(const std::string& optimizer) const {
    const Case& c = GetParam();
    return golden_config(optimizer, c.accumulation, c.backend, c.compute);
  }
};

TEST_P(GoldenTest, LogitsLossAndEveryGradient) {
  const Golden golden = load_golden(GetParam().model);
  GoldenRun run(golden, config("adamw"));
  EXPECT_LE(relative_error(run.logits(), golden.at("logits")), kGradientTolerance);
  const double loss = golden.number("loss");
  EXPECT_NEAR(run.eval_loss(), loss, kGradientTolerance * loss);
  EXPECT_NEAR(run.step(1), loss, kGradientTolerance * loss);
  expect_tensors(run.gradients(), golden, "@grad", kGradientTolerance);
  if (golden.spec.family == Family::moe) expect_routing(run, golden);
}

TEST_P(GoldenTest, TenAdamWSteps) {
  const Golden golden = load_golden(GetParam().model);
  if (!golden.trained()) return;  // gradients only, see tests/golden/README.md
  const Config c = config("adamw");
  GoldenRun run(golden, c);
  for (int64_t i = 0; i < 10; ++i) {
    const double loss = golden.number("adamw.losses", i);
    const double norm = golden.number("adamw.grad_norms", i);
    EXPECT_NEAR(run.step(i + 1), loss, kTrainingTolerance * loss) << "step " << i + 1;
    EXPECT_NEAR(run.norm(), norm, kTrainingTolerance * norm) << "step " << i + 1;
    if (golden.spec.family == Family::moe) {
      const double aux = golden.number("adamw.aux_losses", i);
      EXPECT_NEAR(run.experts().aux_loss, aux, kTrainingTolerance * aux) << "step " << i + 1;
    }
  }
  Tensors weights = run.weights();
  settle_key_biases(weights, golden, 10 * c.optimizer.lr);
  expect_tensors(weights, golden, "@adamw", kTrainingTolerance);
}

TEST_P(GoldenTest, FiveSgdSteps) {
  const Golden golden = load_golden(GetParam().model);
  if (!golden.trained()) return;
  GoldenRun run(golden, config("sgd"));
  for (int64_t i = 0; i < 5; ++i) {
    const double loss = golden.number("sgd.losses", i);
    const double norm = golden.number("sgd.grad_norms", i);
    EXPECT_NEAR(run.step(i + 1), loss, kTrainingTolerance * loss) << "step " << i + 1;
    EXPECT_NEAR(run.norm(), norm, kTrainingTolerance * norm) << "step " << i + 1;
  }
  expect_tensors(run.weights(), golden, "@sgd", kTrainingTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(cases()), case_name);

class GoldenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, Bf16StaysClose) {
  const Golden golden = load_golden(GetParam());
  GoldenRun run(golden, golden_config("adamw", 1, "cpu", "bf16"));
  const double loss = golden.number("loss");
  EXPECT_NEAR(run.step(1), loss, 0.02 * loss);
  // A token near the border between two experts may go to the other one.
  if (golden.spec.family == Family::moe) return;
  expect_tensors(run.gradients(), golden, "@grad", 0.2);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, ::testing::ValuesIn(golden_names()),
                         [](const auto& tested) { return tested.param; });

// ---- import and export -------------------------------------------------------------------------

void expect_same_bytes(const Tensors& got, const Tensors& expected) {
  EXPECT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).type, tensor.type) << name;
    EXPECT_TRUE(got.at(name).bytes == tensor.bytes) << name;
  }
}

/// Imports `folder` into a session of the given precision and exports it without a step.
void round_trip(const std::string& folder, const std::string& compute, const std::string& out,
                const ExportOptions& options) {
  const Json hf = read_json_file(folder + "/config.json");
  const ModelSpec spec = model_spec_from_hf(hf, folder);
  const auto backend = make_backend("cpu", {});
  const Plan plan = compile(golden_config("adamw", 1, "cpu", compute), spec, *backend, {});
  Session session(plan, *backend);
  session.init_states(1);
  SessionStore store(session);
  ModelInfo info;
  info.hf_config = hf;
  note_import(import_hf_weights(posix_files(), store, folder), folder, info);
  export_states(posix_files(), store, info, out, options);
}

class RoundTrip : public ::testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, ImportThenExportGivesTheSameBytes) {
  const std::string folder = golden_folder(GetParam());
  const std::string file = folder + "/model.safetensors";
  const std::string input = posix_files().is_file(file) ? file : folder;
  for (const char* compute : {"fp32", "bf16"}) {
    const TestFolder temp;
    round_trip(folder, compute, temp.file("out"), {});
    expect_same_bytes(read_tensors(temp.file("out")), read_tensors(input));
  }
}

std::vector<std::string> round_trip_names() {
  std::vector<std::string> names = golden_names();
  names.insert(names.end(), {"llama_sharded", "llama_bf16"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, ::testing::ValuesIn(round_trip_names()),
                         [](const auto& tested) { return tested.param; });

TEST(RoundTrip, ShardsOfAnySizeHoldTheSameTensors) {
  const TestFolder temp;
  round_trip(golden_folder("llama"), "fp32", temp.file("out"), {.shard_bytes = 10'000});
  EXPECT_TRUE(posix_files().is_file(temp.file("out/model.safetensors.index.json")));
  expect_same_bytes(read_tensors(temp.file("out")), read_tensors(golden_folder("llama_sharded")));
}

TEST(RoundTrip, Bf16OfTheMastersIsTheOneOfTheLibrary) {
  const TestFolder temp;
  round_trip(golden_folder("llama"), "fp32", temp.file("out"), {.dtype = DType::bf16});
  expect_same_bytes(read_tensors(temp.file("out")), read_tensors(golden_folder("llama_bf16")));
}

}  // namespace
}  // namespace weft::test
