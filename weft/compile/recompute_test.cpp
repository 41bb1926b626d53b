// What recompute keeps, copies and costs: on the graphs of small models and the plans of real ones.
#include "weft/compile/recompute.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "weft/compile/layer_of.h"
#include "weft/compile/passes.h"
#include "weft/compile/pipeline.h"
#include "weft/compile/step_graph.h"
#include "weft/compile/test_config.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

class Support : public KernelSupport {
 public:
  bool supports(const KernelSpec&) const override { return true; }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
};

/// gpt2-124M, or a llama of about the same size.
Config large_config(const std::string& family) {
  Config config = small_config(family, 12);
  config.model.hidden_size = 768;
  config.model.intermediate_size = family == "gpt2" ? 3072 : 2048;
  config.model.num_attention_heads = 12;
  config.model.vocab_size = family == "gpt2" ? 50257 : 32000;
  config.model.max_position_embeddings = 1024;
  config.data.seq_len = 1024;
  config.train.micro_batch = config.train.global_batch = 4;
  config.train.accumulation = 1;
  config.precision.compute = "bf16";
  return config;
}

Graph fused_step(const Config& config) {
  Graph graph = build_step_graph(config, make_model_spec(config.model, {}), false);
  fuse_add(graph);
  remove_dead_nodes(graph);
  return graph;
}

Plan plan_of(Config config, const std::string& policy, int64_t every = 1) {
  config.recompute.policy = policy;
  config.recompute.every = every;
  return compile(config, make_model_spec(config.model, {}), Support(), {});
}

/// Most bytes of activations that are alive at one step.
int64_t activation_bytes(const Plan& plan) {
  std::vector<int64_t> change(plan.program("train").steps.size() + 1, 0);
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.program < 0 || buffer.memory_class != MemoryClass::activations) continue;
    change[static_cast<size_t>(buffer.first_step)] += buffer.bytes;
    change[static_cast<size_t>(buffer.last_step) + 1] -= buffer.bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return *std::max_element(change.begin(), change.end());
}

/// Values that layer nodes of the forward pass make and later phases read, by (micro, layer).
std::map<std::pair<int32_t, int64_t>, int> saved_values(const Graph& graph) {
  std::set<ValueId> saved;
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::forward) continue;
    for (const ValueId input : node.inputs) {
      const NodeId producer = input == kNoValue ? kNoNode : graph.value(input).producer;
      if (producer != kNoNode && graph.node(producer).phase == Phase::forward) saved.insert(input);
    }
  }
  std::map<std::pair<int32_t, int64_t>, int> counts;
  for (const ValueId value : saved) {
    const Node& node = graph.node(graph.value(value).producer);
    if (layer_of(node.scope) != kNoLayer) ++counts[{node.micro, layer_of(node.scope)}];
  }
  return counts;
}

TEST(LayerOf, IsTheFirstNumberOfAScope) {
  EXPECT_EQ(layer_of("model.layers.3.mlp.up_proj"), 3);
  EXPECT_EQ(layer_of("transformer.h.11.attn.c_attn#q"), 11);
  EXPECT_EQ(layer_of("model.layers.7.experts.2.up_proj"), 7);
  EXPECT_EQ(layer_of("5"), 5);
  EXPECT_EQ(layer_of("transformer.ln_f"), kNoLayer);
  EXPECT_EQ(layer_of("model.l2.norm"), kNoLayer);
  EXPECT_EQ(layer_of("model.2x.norm.-1"), kNoLayer);
  EXPECT_EQ(layer_of(""), kNoLayer);
}

TEST(Recompute, FullKeepsOnlyWhatCrossesABorder) {
  for (const std::string family : {"gpt2", "llama"}) {
    Graph graph = fused_step(small_config(family, 5));
    recompute(graph, {.every = 1, .scopes = {}});
    verify_graph(graph);
    const auto saved = saved_values(graph);
    for (int32_t micro = 0; micro < 2; ++micro) {
      for (int64_t layer = 0; layer < 4; ++layer) {
        EXPECT_EQ(saved.at({micro, layer}), 1) << family << " layer " << layer;
      }
      // Nothing but the head runs between the two passes of the last layer.
      EXPECT_GT(saved.at({micro, 4}), 5) << family;
    }
  }
}

TEST(Recompute, SegmentsOfTwoLayersKeepEverySecondBorder) {
  Graph graph = fused_step(small_config("llama", 5));
  recompute(graph, {.every = 2, .scopes = {}});
  verify_graph(graph);
  const auto saved = saved_values(graph);
  EXPECT_FALSE(saved.contains({0, 0}));
  EXPECT_EQ(saved.at({0, 1}), 1);
  EXPECT_FALSE(saved.contains({0, 2}));
  EXPECT_EQ(saved.at({0, 3}), 1);
}

TEST(Recompute, CopiesAreMinimal) {
  for (const std::string family : {"gpt2", "llama"}) {
    Graph graph = fused_step(small_config(family, 3));
    recompute(graph, {.every = 1, .scopes = {}});
    const int32_t nodes = graph.num_nodes();
    int copies = 0;
    for (const Node& node : graph.nodes()) {
      if (!node.recomputed) continue;
      ++copies;
      EXPECT_EQ(node.phase, Phase::backward);
      // The last matmul of a layer makes what is kept: nobody reads a copy of it.
      EXPECT_FALSE(node.scope.ends_with("mlp.c_proj") || node.scope.ends_with("down_proj"));
    }
    EXPECT_GT(copies, 0);
    remove_dead_nodes(graph);
    EXPECT_EQ(graph.num_nodes(), nodes) << "a copy or an original is not needed";
  }
}

TEST(Recompute, B25_CopiesOfDropoutDrawTheSameMask) {
  Config config = small_config("gpt2", 3);
  config.model.dropout = 0.1;
  Graph graph = fused_step(config);
  recompute(graph, {.every = 1, .scopes = {}});
  const auto keys = [&](const Node& node) {
    return std::pair(node.inputs[1], node.inputs[2]);  // step, samples
  };
  int copies = 0;
  for (const Node& copy : graph.nodes()) {
    if (copy.op != OpKind::dropout || !copy.recomputed) continue;
    ++copies;
    const auto original =
        std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
          return node.op == OpKind::dropout && node.phase == Phase::forward &&
                 node.attrs == copy.attrs && node.micro == copy.micro && node.scope == copy.scope &&
                 keys(node) == keys(copy);
        });
    EXPECT_EQ(original, 1) << copy.scope;
  }
  // Per micro-batch and recomputed layer the one after attention: the other crosses the border.
  EXPECT_EQ(copies, 4);
}

TEST(Recompute, B41_RecomputedWorkIsNotCounted) {
  for (const std::string family : {"gpt2", "llama"}) {
    const Config config = large_config(family);
    const Plan none = plan_of(config, "none");
    EXPECT_EQ(none.time.recompute_ms, 0.0);
    EXPECT_EQ(plan_text(none).find("recomputed"), std::string::npos);
    for (const std::string policy : {"full", "selective"}) {
      const Plan plan = plan_of(config, policy);
      EXPECT_EQ(plan.model.flops_per_token, none.model.flops_per_token);
      EXPECT_EQ(plan.program("train").flops, none.program("train").flops) << policy;
      // The same useful work in a longer step.
      EXPECT_NEAR(plan.time.mfu * plan.time.step_ms, none.time.mfu * none.time.step_ms, 1e-9);
      EXPECT_GT(plan.time.recompute_ms, 0.0);
      EXPECT_NEAR(plan.time.step_ms - none.time.step_ms, plan.time.recompute_ms, 1e-6);
      EXPECT_NE(plan_text(plan).find("recomputed activations: "), std::string::npos);
    }
  }
}

TEST(Recompute, FullHoldsOneBorderPerSegmentAndOneSegment) {
  for (const std::string family : {"gpt2", "llama"}) {
    const Config config = large_config(family);
    const int64_t none = activation_bytes(plan_of(config, "none"));
    const int64_t border = int64_t{4} * 1024 * 768 * 2;
    for (const int64_t every : {1, 2, 3}) {
      const Plan plan = plan_of(config, "full", every);
      const int64_t full = activation_bytes(plan);
      const int64_t layer = (none - 12 * border) / 12;  // inside of one, about
      const int64_t expected = 12 / every * border + every * (layer + border);
      fmt::print("{} full every {}: activations {:.0f} MB, none {:.0f} MB, step x {:.3f}\n", family,
                 every, 1e-6 * static_cast<double>(full), 1e-6 * static_cast<double>(none),
                 plan.time.step_ms / plan_of(config, "none").time.step_ms);
      // Beside them: gradients of activations on their way, and what the head needs.
      EXPECT_LT(full, expected + layer);
    }
  }
}

TEST(Recompute, SelectiveHalvesActivationsForFewPercent) {
  for (const std::string family : {"gpt2", "llama"}) {
    const Config config = large_config(family);
    const Plan none = plan_of(config, "none");
    const Plan plan = plan_of(config, "selective");
    const double ratio = plan.time.step_ms / none.time.step_ms;
    fmt::print("{} selective: activations {:.0f} MB, none {:.0f} MB, step x {:.3f}\n", family,
               1e-6 * static_cast<double>(activation_bytes(plan)),
               1e-6 * static_cast<double>(activation_bytes(none)), ratio);
    EXPECT_LE(2 * activation_bytes(plan), activation_bytes(none)) << family;
    EXPECT_LE(ratio, 1.08) << family;
  }
}

TEST(Recompute, SelectiveTakesTheCheapOnesFirst) {
  const Config config = large_config("llama");
  const Graph graph = fused_step(config);
  const MachineSpec machine = default_cpu_machine(1);
  const RecomputeChoice cheap = choose_selective(graph, machine, {.drop = 0.25, .cost = 0.08});
  const std::string layer = "model.layers.4.";
  EXPECT_TRUE(cheap.scopes.contains(layer + "mlp.act_fn"));
  EXPECT_TRUE(cheap.scopes.contains(layer + "input_layernorm"));
  EXPECT_TRUE(cheap.scopes.contains(layer + "post_attention_layernorm"));
  for (const std::string& scope : cheap.scopes) {
    EXPECT_FALSE(scope.ends_with("_proj") || scope.ends_with("self_attn")) << scope;
  }
  EXPECT_TRUE(choose_selective(graph, machine, {.drop = 0.5, .cost = 0.0}).empty());
}

TEST(Recompute, AutoRecomputesNoMoreThanTheBudgetAsksFor) {
  Config config = small_config("llama", 8);
  config.train.accumulation = 1;
  config.train.micro_batch = config.train.global_batch = 16;
  const auto peak = [&](const std::string& policy) {
    return plan_of(config, policy).tiers[static_cast<size_t>(Tier::device)].peak_bytes;
  };
  const std::map<std::string, int64_t> peaks = {
      {"none", peak("none")}, {"selective", peak("selective")}, {"full", peak("full")}};
  ASSERT_LT(peaks.at("full"), peaks.at("selective"));
  ASSERT_LT(peaks.at("selective"), peaks.at("none"));
  EXPECT_EQ(peak("auto"), peaks.at("none"));  // no budget was given
  for (const auto& [policy, bytes] : peaks) {
    config.memory.device = bytes;
    const Plan plan = plan_of(config, "auto");
    EXPECT_TRUE(plan.fits) << policy;
    EXPECT_EQ(plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes, bytes) << policy;
  }
  config.memory.device = peaks.at("full") - 1;
  const auto recomputed = [](const Plan& plan) {
    const std::vector<PlanStep>& steps = plan.program("train").steps;
    return std::count_if(steps.begin(), steps.end(),
                         [](const PlanStep& step) { return step.recomputed; });
  };
  EXPECT_EQ(recomputed(plan_of(config, "auto")), recomputed(plan_of(config, "full")));
}

TEST(Recompute, GatheredWeightsServeCopiesAndBackwardTogether) {
  Config config = small_config("llama", 4);
  config.parallel.data = 2;
  config.parallel.zero = 3;
  config.train.global_batch = 8;
  const Plan none = plan_of(config, "none");
  EXPECT_EQ(plan_of(config, "full").traffic.at("data"), none.traffic.at("data"));
}

}  // namespace
}  // namespace weft
