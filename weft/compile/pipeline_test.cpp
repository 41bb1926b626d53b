// The pipeline on small models: what is in the step, what fused, what the plan holds.
#include "weft/compile/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/compile/passes.h"
#include "weft/compile/step_graph.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

/// Supports everything but the operators in `lacks`; no scratch.
class Support : public KernelSupport {
 public:
  explicit Support(std::vector<OpKind> lacks = {}) : lacks_(std::move(lacks)) {}
  bool supports(const KernelSpec& spec) const override {
    return std::find(lacks_.begin(), lacks_.end(), spec.op) == lacks_.end();
  }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }

 private:
  std::vector<OpKind> lacks_;
};

Config tiny_config(const std::string& family) {
  Config config;
  config.model.family = family;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 40;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  if (family == "llama") config.model.num_key_value_heads = 2;
  config.model.vocab_size = 257;
  config.data.seq_len = 8;
  config.train.micro_batch = 2;
  config.train.accumulation = 3;
  config.train.global_batch = 6;
  config.precision.compute = "fp32";
  config.device.threads = 1;
  return config;
}

std::map<OpKind, int> count_ops(const Graph& graph) {
  std::map<OpKind, int> counts;
  for (const Node& node : graph.nodes()) ++counts[node.op];
  return counts;
}

Graph fused_step(const Config& config) {
  Graph graph = build_step_graph(config, make_model_spec(config.model, {}), false);
  fuse_add(graph);
  remove_dead_nodes(graph);
  verify_graph(graph);
  return graph;
}

TEST(Pipeline, EverySumFoldsIntoAKernel) {
  // Per gpt2 micro-batch only wte + wpe stays an add of its own.
  EXPECT_EQ(count_ops(fused_step(tiny_config("gpt2")))[OpKind::add], 3);
  // Llama: q, k, v and gate, up each feed the norm's gradient through folded matmuls.
  EXPECT_EQ(count_ops(fused_step(tiny_config("llama")))[OpKind::add], 0);
}

TEST(Pipeline, StepHasOneUpdateForEachParameter) {
  const Config config = tiny_config("llama");
  const Graph graph = fused_step(config);
  const size_t parameters = model_parameters(make_model_spec(config.model, {})).size();
  const auto counts = count_ops(graph);
  EXPECT_EQ(counts.at(OpKind::adamw), static_cast<int>(parameters));
  EXPECT_EQ(counts.at(OpKind::sum_squares), static_cast<int>(parameters));
  EXPECT_EQ(counts.at(OpKind::linear_cross_entropy_train), 3);
  EXPECT_EQ(counts.at(OpKind::attention), 6);
  for (const State& state : graph.states()) {
    EXPECT_NE(state.result, kNoValue) << state.name << " is never written";
  }
}

TEST(Pipeline, TiedHeadIsOneParameter) {
  Config config = tiny_config("llama");
  const size_t untied = model_parameters(make_model_spec(config.model, {})).size();
  config.model.tie_word_embeddings = true;
  EXPECT_EQ(model_parameters(make_model_spec(config.model, {})).size(), untied - 1);
  EXPECT_EQ(count_ops(fused_step(config))[OpKind::adamw], static_cast<int>(untied) - 1);
}

TEST(Pipeline, Bf16KeepsMastersAndCopies) {
  Config config = tiny_config("llama");
  config.precision.compute = "bf16";
  const Plan plan = compile(config, make_model_spec(config.model, {}), Support(), {});
  const PlanState* master = plan.find_state("model.embed_tokens.weight@master");
  ASSERT_NE(master, nullptr);
  EXPECT_EQ(master->type.dtype, DType::f32);
  const PlanState* copy = plan.find_state("model.embed_tokens.weight");
  EXPECT_EQ(copy->type.dtype, DType::bf16);
  EXPECT_EQ(copy->init.source, master->name);
  EXPECT_EQ(plan.find_state("model.norm.weight")->type.dtype, DType::f32);
  EXPECT_EQ(plan.find_state("model.norm.weight@master"), nullptr);
}

TEST(Pipeline, MissingFusedKernelFallsBackToItsDefinition) {
  const Config config = tiny_config("gpt2");
  const ModelSpec spec = make_model_spec(config.model, {});
  const Plan plan = compile(config, spec, Support({OpKind::linear_cross_entropy_train}), {});
  int fused = 0;
  int plain = 0;
  for (const PlanStep& step : plan.program("train").steps) {
    fused += step.op == OpKind::linear_cross_entropy_train ? 1 : 0;
    plain += step.op == OpKind::cross_entropy_grad ? 1 : 0;
  }
  EXPECT_EQ(fused, 0);
  EXPECT_EQ(plain, 3);
}

TEST(Pipeline, MissingKernelIsRefusedByName) {
  const Config config = tiny_config("gpt2");
  const ModelSpec spec = make_model_spec(config.model, {});
  try {
    compile(config, spec, Support({OpKind::layernorm}), {});
    FAIL() << "compiled without layernorm";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("layernorm"), std::string::npos) << error.what();
  }
}

TEST(Pipeline, LearnedPositionsLimitTheSequence) {
  Config config = tiny_config("gpt2");
  config.model.max_position_embeddings = 7;
  const ModelSpec spec = make_model_spec(config.model, std::nullopt);
  EXPECT_THROW(compile(config, spec, Support(), CompileOptions()), UsageError);
}

TEST(Pipeline, B44_StateOf242BillionParameters) {
  Config config = tiny_config("llama");
  config.precision.compute = "bf16";
  config.model.hidden_size = 20480;
  config.model.intermediate_size = 69632;
  config.model.num_hidden_layers = 46;
  config.model.num_attention_heads = 160;
  config.model.num_key_value_heads = 16;
  config.model.vocab_size = 40000;
  config.train.micro_batch = config.train.accumulation = config.train.global_batch = 1;
  config.memory.device = int64_t{80} * 1000 * 1000 * 1000;
  // Everything stays on the device.
  for (OffloadPolicy* policy : {&config.offload.optimizer, &config.offload.weights,
                                &config.offload.gradients, &config.offload.activations}) {
    policy->tier = "device";
  }
  const ModelSpec spec = make_model_spec(config.model, {});
  const auto n = static_cast<double>(count_parameters(spec));
  EXPECT_NEAR(n, 242e9, 5e9);
  const Plan plan = compile(config, spec, Support(), {});
  EXPECT_FALSE(plan.fits);
  double master = 0;
  double moments = 0;
  double weights = 0;
  for (const PlanState& state : plan.states) {
    const auto bytes = static_cast<double>(state.type.bytes());
    if (state.role == StateRole::weight) weights += bytes;
    if (state.role == StateRole::master) master += bytes;
    if (state.role == StateRole::moment) moments += bytes;
  }
  EXPECT_NEAR(weights / n, 2.0, 1e-3);
  EXPECT_NEAR(master / n, 4.0, 1e-3);
  EXPECT_NEAR(moments / n, 8.0, 1e-3);
  const auto& device = plan.tiers[static_cast<size_t>(Tier::device)];
  // With fp32 gradients: 18 bytes per parameter before any activation.
  EXPECT_NEAR(static_cast<double>(device.by_class[static_cast<size_t>(MemoryClass::gradients)]) / n,
              4.0, 0.01);
  EXPECT_GT(static_cast<double>(device.peak_bytes) / n, 17.99);
}

TEST(Pipeline, DumpShowsEveryStage) {
  const Config config = tiny_config("llama");
  std::vector<std::string> stages;
  CompileOptions options;
  options.eval = true;
  options.dump = [&](std::string_view stage, const std::string& text) {
    stages.emplace_back(stage);
    EXPECT_FALSE(text.empty());
  };
  compile(config, make_model_spec(config.model, {}), Support(), options);
  // Both programs as they are for all ranks, then what this rank gets of each.
  const std::vector<std::string> expected = {"model",  "model", "expand", "fuse", "probes", "step",
                                             "expand", "fuse",  "probes", "step", "plan"};
  EXPECT_EQ(stages, expected);
}

}  // namespace
}  // namespace weft
