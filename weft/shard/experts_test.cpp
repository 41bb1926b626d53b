// How a layer of experts is cut: experts over axis expert, sequences everywhere else, the moves
// between the two, and the proof that every rank's piece adds up.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "weft/autodiff/backward.h"
#include "weft/ops/op_kind.h"
#include "weft/shard/localize.h"
#include "weft/shard/pieces.h"
#include "weft/shard/propagate.h"

namespace weft {
namespace {

struct Cut {
  int64_t data, expert, op;
  int64_t capacity;  // 0 = dropless
};

constexpr int64_t kB = 8, kS = 6, kH = 4, kE = 4, kI = 12, kK = 2;

/// A layer of experts with its gradients, between values that the batch cuts.
Graph expert_layer(int64_t capacity) {
  Graph graph;
  const auto weight = [&](const std::string& name, Shape shape) {
    State state;
    state.name = name;
    state.type = {DType::f32, shape};
    state.logical = {name, shape, Shape(shape.size(), 0)};
    return graph.add_state(state);
  };
  const ValueId x = graph.add_input("x", {DType::f32, {kB, kS, kH}}, true);
  const ValueId lengths = graph.add_input("lengths", {DType::i32, {kB}}, true);
  const ValueId dy = graph.add_input("dy", {DType::f32, {kB, kS, kH}}, true);
  const ValueId aux = graph.add_input("aux_scale", {DType::f32, {1}});
  const std::vector<ValueId> weights = {weight("gate.weight", {kE, kH}),
                                        weight("experts.gate_proj.weight", {kE, kI, kH}),
                                        weight("experts.up_proj.weight", {kE, kI, kH}),
                                        weight("experts.down_proj.weight", {kE, kH, kI})};
  const Attrs rows = {{"capacity", capacity}};
  graph.set_scope("gate");
  const auto routed = graph.add_node(
      OpKind::router, {x, weights[0], lengths, kNoValue, aux},
      {{"top_k", kK}, {"score", "softmax"}, {"normalize", true}, {"capacity", capacity}});
  graph.set_scope("experts");
  const ValueId in = graph.add(OpKind::dispatch, {x, routed[2], routed[4], kNoValue}, rows);
  const auto project = [&](const std::string& name, ValueId from, ValueId w) {
    graph.set_scope("experts." + name);
    return graph.add(OpKind::grouped_matmul, {from, w, routed[4]}, {{"transpose_w", true}});
  };
  const ValueId gate = project("gate_proj", in, weights[1]);
  const ValueId up = project("up_proj", in, weights[2]);
  graph.set_scope("experts.act_fn");
  const ValueId act = graph.add(OpKind::expert_glu, {gate, up, routed[4]}, {{"kind", "silu"}});
  const ValueId down = project("down_proj", act, weights[3]);
  graph.set_scope("experts");
  const ValueId y = graph.add(OpKind::combine, {down, routed[2], routed[4], routed[1], x}, rows);
  const auto grads = backward(graph, 0, y, dy, weights, {});
  for (const ValueId w : weights) {
    graph.set_phase(Phase::update);
    graph.set_scope("update");
    // Stands for the optimizer: the gradient is wanted where the weight is.
    const ValueId sum = graph.add(OpKind::add, {w, grads.at(w)});
    graph.set_state_result(graph.value(w).name, sum);
  }
  return graph;
}

std::vector<ShardEntry> entries() {
  const auto entry = [](std::string pattern, std::vector<std::string> axes) {
    ShardEntry made;
    made.pattern = std::move(pattern);
    made.operands["weight"] = std::move(axes);
    return made;
  };
  return {entry("experts.gate_proj", {"expert", "", "op"}),
          entry("experts.up_proj", {"expert", "", "op"}),
          entry("experts.down_proj", {"expert", "op", ""})};
}

class Experts : public ::testing::TestWithParam<Cut> {
 protected:
  Experts()
      : graph_(expert_layer(GetParam().capacity)),
        mesh_({{"data", GetParam().data}, {"expert", GetParam().expert}, {"op", GetParam().op}}),
        router_(mesh_),
        sharding_(propagate(graph_, router_, {entries(), false, 0})) {}

  /// What moves over axis expert before the update.
  std::set<MoveKind> moves() {
    std::set<MoveKind> kinds;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (node.phase == Phase::update) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId input = node.inputs[i];
        if (input == kNoValue || !is_floating(graph_.type(input).dtype)) continue;
        const Placement& from = sharding_.values[static_cast<size_t>(input)];
        const Placement& to = sharding_.nodes[static_cast<size_t>(id)].inputs[i];
        for (const Move& move : router_.route(graph_.type(input), from, to).moves) {
          if (move.axis == mesh_.find("expert")) kinds.insert(move.kind);
        }
      }
    }
    return kinds;
  }

  Graph graph_;
  Mesh mesh_;
  Router router_;
  Sharding sharding_;
};

TEST_P(Experts, EveryRankHasALegalPiece) {
  verify_graph(graph_);
  verify_sharding(graph_, sharding_, router_);
  for (int64_t rank = 0; rank < mesh_.world(); ++rank) {
    verify_graph(localize(graph_, sharding_, router_, rank));
  }
}

TEST_P(Experts, WeightsAreCutByExpertAndWidth) {
  const Cut cut = GetParam();
  const Graph local = localize(graph_, sharding_, router_, 0);
  EXPECT_EQ(local.find_state("experts.gate_proj.weight")->type.shape,
            (Shape{kE / cut.expert, kI / cut.op, kH}));
  EXPECT_EQ(local.find_state("experts.down_proj.weight")->type.shape,
            (Shape{kE / cut.expert, kH, kI / cut.op}));
  EXPECT_EQ(local.find_state("gate.weight")->type.shape, (Shape{kE, kH}));
}

TEST_P(Experts, RowsMoveAsTheRowLayoutAsks) {
  const Cut cut = GetParam();
  const std::set<MoveKind> kinds = moves();
  EXPECT_EQ(kinds.contains(MoveKind::all_to_all), cut.expert > 1 && cut.capacity > 0);
  EXPECT_EQ(kinds.contains(MoveKind::all_gather), cut.expert > 1 && cut.capacity == 0);
}

INSTANTIATE_TEST_SUITE_P(Cuts, Experts,
                         ::testing::Values(Cut{2, 1, 1, 0}, Cut{2, 1, 1, 3}, Cut{1, 2, 1, 0},
                                           Cut{1, 2, 1, 3}, Cut{1, 4, 1, 0}, Cut{1, 4, 1, 3},
                                           Cut{2, 2, 1, 0}, Cut{2, 2, 1, 3}, Cut{2, 2, 2, 0},
                                           Cut{2, 2, 2, 3}, Cut{1, 1, 3, 0}, Cut{1, 1, 3, 3}),
                         [](const auto& tested) {
                           const Cut& cut = tested.param;
                           return fmt::format("d{}e{}o{}c{}", cut.data, cut.expert, cut.op,
                                              cut.capacity);
                         });

}  // namespace
}  // namespace weft
