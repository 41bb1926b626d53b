// The update of a step, moved behind the next forward pass.
#include "weft/compile/late_update.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weft/compile/step_graph.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

Graph step_graph(const std::string& compute) {
  Config config;
  config.model.family = "llama";
  config.model.hidden_size = 16;
  config.model.intermediate_size = 40;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  config.model.vocab_size = 257;
  config.data.seq_len = 8;
  config.train.micro_batch = 2;
  config.train.accumulation = 2;
  config.train.global_batch = 4;
  config.precision.compute = compute;
  config.device.threads = 1;
  return build_step_graph(config, make_model_spec(config.model, {}), false);
}

int updates_in(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.phase == Phase::update ? 1 : 0;
  return count;
}

TEST(LateUpdate, FlushIsTheUpdateAlone) {
  for (const char* compute : {"fp32", "bf16"}) {
    Graph train = step_graph(compute);
    const int updates = updates_in(train);
    const size_t states = train.states().size();
    const Graph flush = delay_updates(train);
    verify_graph(train);
    verify_graph(flush);
    EXPECT_EQ(updates_in(train), updates);
    EXPECT_EQ(updates_in(flush), updates);
    EXPECT_EQ(flush.num_nodes(), updates);
    EXPECT_GT(train.states().size(), states);
    EXPECT_EQ(flush.states().size(), train.states().size());
    ASSERT_EQ(flush.inputs().size(), 1u);
    EXPECT_EQ(flush.value(flush.inputs()[0]).name, "hyper");
  }
}

TEST(LateUpdate, GradientsAndTheVerdictWait) {
  Graph train = step_graph("bf16");
  delay_updates(train);
  int gradients = 0;
  for (const State& state : train.states()) {
    if (!state.name.ends_with(kPendingSuffix)) continue;
    EXPECT_NE(state.result, kNoValue) << state.name;
    EXPECT_TRUE(state.logical.name.empty()) << state.name << " is part of checkpoints";
    gradients += state.type.elements() > 1 ? 1 : 0;
  }
  EXPECT_EQ(gradients, 3 + 2 * 9);
  EXPECT_NE(train.find_state(kPendingApply), nullptr);
}

TEST(LateUpdate, EveryPassReadsTheUpdatedWeights) {
  Graph train = step_graph("bf16");
  delay_updates(train);
  for (NodeId id = 0; id < train.num_nodes(); ++id) {
    const Node& node = train.node(id);
    if (node.phase == Phase::update) continue;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || train.value(input).kind != ValueKind::state) continue;
      const std::string& name = train.value(input).name;
      const State* state = train.find_state(name);
      ASSERT_NE(state, nullptr) << name;
      EXPECT_EQ(state->result, kNoValue) << name << " is read before its update";
    }
  }
}

TEST(LateUpdate, AnUpdateStandsRightBeforeItsFirstReader) {
  Graph train = step_graph("fp32");
  delay_updates(train);
  // The embedding is read first, the head last: the passes begin before most updates.
  NodeId first_forward = kNoNode;
  for (NodeId id = 0; id < train.num_nodes() && first_forward == kNoNode; ++id) {
    if (train.node(id).phase == Phase::forward) first_forward = id;
  }
  EXPECT_LE(first_forward, 2);
  EXPECT_NE(train.node(train.num_nodes() - 1).phase, Phase::update);
}

TEST(LateUpdate, AWeightThatNoPassReadsIsUpdatedBeforeItsNextGradient) {
  // Rank 1 of two holds such biases: rank 0 adds them, both update them.
  Graph train = step_graph("fp32");
  const State bias = *train.find_state("model.norm.weight");
  const ValueId other = train.add_input("other", bias.type, false);
  for (NodeId id = 0; id < train.num_nodes(); ++id) {
    if (train.node(id).phase == Phase::update) continue;
    for (ValueId& input : train.node(id).inputs) input = input == bias.value ? other : input;
  }
  delay_updates(train);
  verify_graph(train);
  const State* waiting = train.find_state("model.norm.weight@pending");
  ASSERT_NE(waiting, nullptr);
  const NodeId next = train.value(waiting->result).producer;
  NodeId update = kNoNode;
  for (NodeId id = 0; id < train.num_nodes(); ++id) {
    const std::vector<ValueId>& inputs = train.node(id).inputs;
    if (std::find(inputs.begin(), inputs.end(), waiting->value) != inputs.end()) update = id;
  }
  ASSERT_NE(update, kNoNode);
  EXPECT_LT(update, next);
}

}  // namespace
}  // namespace weft
