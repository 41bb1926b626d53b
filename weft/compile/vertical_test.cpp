// The vertical order of micro-batches.
#include "weft/compile/vertical.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "weft/compile/layer_of.h"
#include "weft/compile/passes.h"
#include "weft/compile/step_graph.h"
#include "weft/compile/test_config.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

constexpr int64_t kLayers = 3;
constexpr int32_t kMicros = 3;

Graph step_graph(const std::string& family) {
  Config config = small_config(family, kLayers);
  config.train.accumulation = kMicros;
  Graph graph = build_step_graph(config, make_model_spec(config.model, {}), false);
  fuse_add(graph);
  remove_dead_nodes(graph);
  return graph;
}

/// Layers in the order in which the nodes of a phase visit them, without repetitions.
std::vector<int64_t> visits(const Graph& graph, Phase phase) {
  std::vector<int64_t> layers;
  for (const Node& node : graph.nodes()) {
    const int64_t layer = layer_of(node.scope);
    if (node.phase != phase || layer == kNoLayer) continue;
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  return layers;
}

TEST(Vertical, AllMicroBatchesPassALayerBeforeTheNext) {
  Graph graph = step_graph("llama");
  ASSERT_EQ(visits(graph, Phase::forward).size(), kLayers * kMicros);
  order_vertically(graph);
  verify_graph(graph);
  EXPECT_EQ(visits(graph, Phase::forward), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(visits(graph, Phase::backward), (std::vector<int64_t>{2, 1, 0}));
  // Within a layer one micro-batch after the other.
  std::map<std::pair<Phase, int64_t>, int32_t> latest;
  for (const Node& node : graph.nodes()) {
    if (layer_of(node.scope) == kNoLayer || node.phase > Phase::backward) continue;
    int32_t& micro = latest[{node.phase, layer_of(node.scope)}];
    EXPECT_GE(node.micro, micro) << node.scope;
    micro = node.micro;
  }
}

TEST(Vertical, EmbeddingsComeFirstAndHeadsLast) {
  Graph graph = step_graph("llama");
  order_vertically(graph);
  bool layers_began = false;
  bool layers_ended = false;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::forward) continue;
    if (node.op == OpKind::embedding) {
      EXPECT_FALSE(layers_began);
    }
    if (node.op == OpKind::linear_cross_entropy_train) layers_ended = true;
    if (layer_of(node.scope) == kNoLayer) continue;
    layers_began = true;
    EXPECT_FALSE(layers_ended) << node.scope;
  }
  EXPECT_TRUE(layers_ended);
}

TEST(Vertical, ATiedWeightKeepsTheOrderOfItsSum) {
  Graph graph = step_graph("gpt2");
  std::vector<std::string> before;
  std::vector<std::string> after;
  const auto sums = [&](std::vector<std::string>& list) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId output : node.outputs) {
        if (output == kNoValue || !node.scope.starts_with("transformer.wte")) continue;
        if (graph.value(output).memory_class != MemoryClass::gradients) continue;
        list.push_back(graph.value(output).name);
      }
    }
  };
  sums(before);
  order_vertically(graph);
  verify_graph(graph);
  sums(after);
  EXPECT_GE(before.size(), static_cast<size_t>(kMicros));
  EXPECT_EQ(before, after);
  EXPECT_EQ(visits(graph, Phase::forward), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Vertical, OneMicroBatchStaysAsItIs) {
  Config config;
  config.model.family = "llama";
  config.model.hidden_size = 16;
  config.model.intermediate_size = 40;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.vocab_size = 31;
  config.train.accumulation = 1;
  config.precision.compute = "fp32";
  Graph graph = build_step_graph(config, make_model_spec(config.model, {}), false);
  fuse_add(graph);
  const auto kernels = [&] {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes()) {
      if (layer_of(node.scope) != kNoLayer) names.push_back(node.scope);
    }
    return names;
  };
  const std::vector<std::string> before = kernels();
  order_vertically(graph);
  EXPECT_EQ(kernels(), before);
}

}  // namespace
}  // namespace weft
