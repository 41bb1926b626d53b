// Experts whose routing is known by hand: a bigram model (tests/support/hf_fixture.h) with one
// layer of experts. Token c enters the layer as its one-hot times sqrt(8), so entry c of router row
// e is the logit of expert e after token c, over sqrt(8). Expert e adds the one-hot of e, times its
// weight.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/hf_fixture.h"
#include "tests/support/model_run.h"
#include "weft/base/error.h"
#include "weft/io/test_folder.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 8;  // = vocabulary
constexpr int64_t kWidth = 4;

struct Steered {
  std::vector<double> logits;  // per expert, after every token
  int64_t top_k = 2;
  bool normalize = true;
  int64_t layers = 1;
  double aux_coef = 0.0;
};

Json config_of(const Steered& s) {
  Json json = tiny_llama_config({.layers = s.layers, .kv_heads = 2});
  json.set("model_type", "deepseek");
  json.set("n_routed_experts", static_cast<int64_t>(s.logits.size()));
  json.set("num_experts_per_tok", s.top_k);
  json.set("moe_intermediate_size", kWidth);
  json.set("norm_topk_prob", s.normalize);
  json.set("aux_loss_alpha", s.aux_coef);
  return json;
}

HostTensor constant(Shape shape, double value) {
  HostTensor tensor({DType::f32, std::move(shape)});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, value);
  return tensor;
}

/// What one unit of an expert's MLP makes of x when its gate and up rows are all 1.
double unit_value() {
  const double x = std::sqrt(8.0);
  return x / (1.0 + std::exp(-x)) * x;
}

Tensors tensors_of(const Steered& s) {
  Tensors tensors = bigram_tensors({.layers = s.layers, .kv_heads = 2}, {});
  HostTensor& head = tensors.at("lm_head.weight");
  for (int64_t i = 0; i < kHidden; ++i) head.set(i * kHidden + i, 1.0);
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      tensors.erase(mlp + name + ".weight");
    }
    const auto experts = static_cast<int64_t>(s.logits.size());
    HostTensor router({DType::f32, {experts, kHidden}});
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t h = 0; h < kHidden; ++h) {
        router.set(e * kHidden + h, s.logits[static_cast<size_t>(e)] / std::sqrt(8.0));
      }
      const std::string expert = fmt::format("{}experts.{}.", mlp, e);
      tensors.emplace(expert + "gate_proj.weight", constant({kWidth, kHidden}, 1.0));
      tensors.emplace(expert + "up_proj.weight", constant({kWidth, kHidden}, 1.0));
      HostTensor down = constant({kHidden, kWidth}, 0.0);
      for (int64_t i = 0; i < kWidth; ++i) {
        down.set(e * kWidth + i, 1.0 / (static_cast<double>(kWidth) * unit_value()));
      }
      tensors.emplace(expert + "down_proj.weight", std::move(down));
    }
    tensors.emplace(mlp + "gate.weight", std::move(router));
  }
  return tensors;
}

Config run_config(int64_t rows, int64_t accumulation, int64_t seq_len,
                  const std::string& compute = "fp32") {
  Config config = golden_config("sgd", 1, "ref", compute);
  config.data.seq_len = seq_len;
  config.train.accumulation = accumulation;
  config.train.micro_batch = rows / accumulation;
  config.train.global_batch = rows;
  return config;
}

/// The steered model in a session; `change` edits its specification.
class SteeredRun {
 public:
  SteeredRun(const Steered& s, const Config& config, double capacity_factor = 0.0)
      : config_(config) {
    write_hf_folder(temp_.path(), config_of(s), tensors_of(s));
    ModelSpec spec = model_spec_from_hf(config_of(s), "test");
    spec.moe.capacity_factor = capacity_factor;
    run_ = std::make_unique<ModelRun>(spec, temp_.path(), config);
  }

  /// Every row is token 7 throughout.
  HostTensor tokens() const { return filled(7); }
  HostTensor labels() const { return filled(3); }
  double step(int64_t number) { return run_->step(number, tokens(), labels()); }
  ModelRun& run() { return *run_; }

  /// Weight of expert `e` at position `s` of the first row: what it added, over the token itself.
  double weight(int64_t s, int64_t e) {
    const HostTensor logits = run_->logits(tokens());
    return logits.get(s * kHidden + e) / logits.get(s * kHidden + 7);
  }

 private:
  HostTensor filled(double value) const {
    HostTensor tensor({DType::i32, {config_.train.global_batch, config_.data.seq_len}});
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, value);
    return tensor;
  }

  TestFolder temp_;
  Config config_;
  std::unique_ptr<ModelRun> run_;
};

TEST(SteeredExperts, B33_WeightsFollowNormTopkProb) {
  SteeredRun normalised({.logits = {2, 1, 0, -1}}, run_config(1, 1, 4));
  EXPECT_NEAR(normalised.weight(0, 0), 0.7311, 1e-4);
  EXPECT_NEAR(normalised.weight(0, 1), 0.2689, 1e-4);
  EXPECT_NEAR(normalised.weight(0, 2), 0.0, 1e-6);
  SteeredRun raw({.logits = {2, 1, 0, -1}, .normalize = false}, run_config(1, 1, 4));
  EXPECT_NEAR(raw.weight(0, 0), 0.6439, 1e-4);
  EXPECT_NEAR(raw.weight(0, 1), 0.2369, 1e-4);
}

TEST(SteeredExperts, B33_TiesGoToTheLowestIndex) {
  SteeredRun run({.logits = {0, 0, 0, 0}, .normalize = false}, run_config(1, 1, 4));
  EXPECT_NEAR(run.weight(0, 0), 0.25, 1e-5);
  EXPECT_NEAR(run.weight(0, 1), 0.25, 1e-5);
  EXPECT_NEAR(run.weight(0, 2), 0.0, 1e-6);
  run.step(1);
  EXPECT_EQ(run.run().experts().expert_tokens, (std::vector<std::vector<int64_t>>{{4, 4, 0, 0}}));
}

TEST(SteeredExperts, B33_Bf16ChoosesAsFp32Does) {
  // 1 and 1.001 are the same number in bf16.
  const Steered close{.logits = {1.0, 1.001, 0.0, -1.0}, .top_k = 1};
  for (const char* compute : {"fp32", "bf16"}) {
    SteeredRun run(close, run_config(1, 1, 4, compute));
    run.step(1);
    EXPECT_EQ(run.run().experts().expert_tokens, (std::vector<std::vector<int64_t>>{{0, 4, 0, 0}}))
        << compute;
  }
}

TEST(SteeredExperts, B13_BalanceLossOfAZeroRouterIsTheNumberOfChoices) {
  for (const int64_t layers : {1, 3}) {
    for (const int64_t accumulation : {1, 2}) {
      for (const int64_t top_k : {1, 2}) {
        SteeredRun run({.logits = {0, 0, 0, 0}, .top_k = top_k, .layers = layers, .aux_coef = 0.01},
                       run_config(4, accumulation, 6));
        run.step(1);
        EXPECT_NEAR(run.run().experts().aux_loss, static_cast<double>(top_k), 1e-6);
      }
    }
  }
}

TEST(SteeredExperts, B13_TheCoefficientReachesTheRouter) {
  const std::string router = "model.layers.0.mlp.gate.weight";
  const auto trained = [&](double coefficient) {
    SteeredRun run({.logits = {0.3, 0.2, 0.1, 0}, .aux_coef = coefficient}, run_config(2, 1, 4));
    run.step(1);
    return run.run().weights().at(router);
  };
  EXPECT_GT(relative_error(trained(0.01), trained(0.0)), 1e-5);
}

TEST(SteeredExperts, B35_CapacityDropsTheLastAndTheResidualStays) {
  // Experts 0 and 1 are offered 16 tokens each and have room for 8.
  SteeredRun run({.logits = {2, 1, 0, 0}}, run_config(1, 1, 16), 1.0);
  run.step(1);
  const StepRecord experts = run.run().experts();
  EXPECT_EQ(experts.dropped_tokens, 16);
  EXPECT_EQ(experts.expert_tokens, (std::vector<std::vector<int64_t>>{{16, 16, 0, 0}}));
  SteeredRun fresh({.logits = {2, 1, 0, 0}}, run_config(1, 1, 16), 1.0);
  EXPECT_NEAR(fresh.weight(7, 0), 0.7311, 1e-4);
  EXPECT_EQ(fresh.weight(8, 0), 0.0);
  EXPECT_EQ(fresh.weight(15, 1), 0.0);
}

TEST(SteeredExperts, StackedFilesReadLikeThoseOfSingleExperts) {
  const Steered steered{.logits = {2, 1, 0, -1}};
  const Tensors single = tensors_of(steered);
  Tensors stacked;
  HostTensor gate_up({DType::f32, {4, 2 * kWidth, kHidden}}),
      down({DType::f32, {4, kHidden, kWidth}});
  for (const auto& [name, tensor] : single) {
    if (name.find(".experts.") == std::string::npos) stacked.emplace(name, tensor);
  }
  for (int64_t e = 0; e < 4; ++e) {
    const std::string expert = fmt::format("model.layers.0.mlp.experts.{}.", e);
    for (int64_t i = 0; i < kWidth * kHidden; ++i) {
      gate_up.set(2 * e * kWidth * kHidden + i, single.at(expert + "gate_proj.weight").get(i));
      gate_up.set((2 * e + 1) * kWidth * kHidden + i, single.at(expert + "up_proj.weight").get(i));
      down.set(e * kWidth * kHidden + i, single.at(expert + "down_proj.weight").get(i));
    }
  }
  stacked.emplace("model.layers.0.mlp.experts.gate_up_proj", std::move(gate_up));
  stacked.emplace("model.layers.0.mlp.experts.down_proj", std::move(down));
  const TestFolder one, other;
  write_hf_folder(one.path(), config_of(steered), single);
  write_hf_folder(other.path(), config_of(steered), stacked);
  const ModelSpec spec = model_spec_from_hf(config_of(steered), "test");
  ModelRun a(spec, one.path(), run_config(1, 1, 4));
  ModelRun b(spec, other.path(), run_config(1, 1, 4));
  const Tensors weights = b.weights();
  for (const auto& [name, tensor] : a.weights()) {
    EXPECT_TRUE(weights.at(name).bytes == tensor.bytes) << name;
  }
}

// ---- the selection bias ------------------------------------------------------------------------

const std::string kBias = "model.layers.1.mlp.gate.e_score_correction_bias";

/// From now on no gradient is finite.
void spoil_head(ModelRun& run) {
  for (size_t i = 0; i < run.plan().states.size(); ++i) {
    const PlanState& state = run.plan().states[i];
    if (state.name != "lm_head.weight") continue;
    HostTensor endless(state.type);
    for (int64_t k = 0; k < endless.size(); ++k) {
      endless.set(k, std::numeric_limits<double>::infinity());
    }
    run.session().write_state(static_cast<int>(i), endless.bytes.data());
  }
}

TEST(SelectionBias, MovesAgainstTheLoadAndNotOnASkippedStep) {
  const Golden golden = load_golden("dots1");
  ModelSpec spec = golden.spec;
  spec.moe.bias_rate = 0.01;
  ModelRun run(spec, golden.folder, golden_config("adamw", 3, "ref", "fp32"));
  const HostTensor before = run.weights().at(kBias);
  run.step(1, golden.at("input_ids"), golden.at("shifted_labels"));
  const std::vector<int64_t> load = run.experts().expert_tokens.at(0);
  const HostTensor after = run.weights().at(kBias);
  int64_t sum = 0;
  for (const int64_t tokens : load) sum += tokens;
  const auto experts = static_cast<int64_t>(load.size());
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t missing = sum - experts * load[static_cast<size_t>(e)];
    const double step = missing > 0 ? 0.01 : missing < 0 ? -0.01 : 0.0;
    EXPECT_NEAR(after.get(e) - before.get(e), step, 1e-7) << "expert " << e;
  }
  spoil_head(run);
  EXPECT_THROW(run.step(2, golden.at("input_ids"), golden.at("shifted_labels")), BugError)
      << "the harness refuses steps that are not applied";
  EXPECT_TRUE(run.weights().at(kBias).bytes == after.bytes);
}

TEST(SelectionBias, StaysWithoutARate) {
  const Golden golden = load_golden("dots1");
  ModelRun run(golden.spec, golden.folder, golden_config("adamw", 1, "ref", "fp32"));
  const HostTensor before = run.weights().at(kBias);
  run.step(1, golden.at("input_ids"), golden.at("shifted_labels"));
  EXPECT_TRUE(run.weights().at(kBias).bytes == before.bytes);
}

}  // namespace
}  // namespace weft::test
