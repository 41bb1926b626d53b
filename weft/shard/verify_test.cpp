// verify_sharding holds for what propagate finds and catches every single change to it.
#include <gtest/gtest.h>

#include <functional>

#include "weft/base/error.h"
#include "weft/compile/default_shards.h"
#include "weft/compile/passes.h"
#include "weft/compile/step_graph.h"
#include "weft/shard/pieces.h"
#include "weft/shard/propagate.h"

namespace weft {
namespace {

struct Sharded {
  Graph graph;
  Mesh mesh;
  std::unique_ptr<Router> router;
  Sharding sharding;

  void verify() { verify_sharding(graph, sharding, *router); }
  std::string place(NodeId id) const {
    const Node& node = graph.node(id);
    return std::string(op_def(node.op).name) + " [" + node.scope + "]";
  }
};

struct Cut {
  const char* family;
  int64_t data;
  int64_t op;
  bool sequence;
  int64_t zero;
};

std::unique_ptr<Sharded> shard(const Cut& cut) {
  Config config;
  config.model.family = cut.family;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 24;
  config.model.num_hidden_layers = 1;
  config.model.num_attention_heads = 4;
  config.model.vocab_size = 11;
  config.model.dropout = 0.1;
  config.data.seq_len = 6;
  config.train.micro_batch = 2;
  config.train.accumulation = 2;
  config.precision.compute = "fp32";
  config.parallel.data = cut.data;
  config.parallel.op = cut.op;
  config.parallel.sequence = cut.sequence;
  config.parallel.zero = cut.zero;
  const ModelSpec spec = make_model_spec(config.model, {});
  auto result = std::make_unique<Sharded>();
  result->graph = build_step_graph(config, spec, false);
  result->mesh = make_mesh(config.parallel);
  result->router = std::make_unique<Router>(result->mesh);
  ShardOptions options{shard_entries(config, spec, result->mesh), cut.sequence,
                       static_cast<int>(cut.zero)};
  expand_cut(result->graph, options.entries, result->mesh);
  remove_dead_nodes(result->graph);
  result->sharding = propagate(result->graph, *result->router, options);
  return result;
}

const std::vector<Cut> kCuts = {
    {"gpt2", 2, 2, false, 0}, {"gpt2", 2, 2, true, 3},   {"llama", 1, 4, true, 0},
    {"llama", 2, 2, true, 2}, {"llama", 3, 1, false, 1},
};

/// All placements of one more or one less property than `placement`.
std::vector<Placement> changed(const Placement& placement, const TensorType& type,
                               const Mesh& mesh) {
  std::vector<Placement> all;
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) continue;
    Placement other = placement;
    other.partial ^= 1U << axis;
    all.push_back(other);
    if (placement.cuts(axis)) {
      other = placement;
      std::erase(other.flat, axis);
      for (DimCut& dim : other.dims) std::erase(dim.axes, axis);
      all.push_back(other);
      continue;
    }
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (type.shape[d] == 1) continue;
      other = placement;
      other.dims[d].axes.push_back(axis);
      all.push_back(other);
    }
  }
  std::vector<Placement> different;
  for (Placement& other : all) {
    other = canonical(other, type.shape, mesh);
    if (!(other == placement)) different.push_back(other);
  }
  return different;
}

class Mutations {
 public:
  explicit Mutations(Sharded& sharded) : sharded_(sharded) {}

  /// Sets `target` to `value` for one verification, which must fail.
  template <class T>
  void must_fail(T& target, T value, const std::string& what) {
    std::swap(target, value);
    ++count_;
    try {
      sharded_.verify();
      if (missed_++ < 5) ADD_FAILURE() << "not caught: " << what;
    } catch (const BugError&) {
    }
    std::swap(target, value);
  }
  int count() const { return count_; }
  int missed() const { return missed_; }

 private:
  Sharded& sharded_;
  int count_ = 0;
  int missed_ = 0;
};

class VerifySharding : public ::testing::TestWithParam<Cut> {};

TEST_P(VerifySharding, HoldsForWhatPropagateFinds) {
  const auto sharded = shard(GetParam());
  EXPECT_NO_THROW(sharded->verify());
}

TEST_P(VerifySharding, CatchesEveryChangedOperand) {
  const auto sharded = shard(GetParam());
  Mutations mutations(*sharded);
  for (NodeId id = 0; id < sharded->graph.num_nodes(); id += 3) {
    const Node& node = sharded->graph.node(id);
    NodePlacements& placements = sharded->sharding.nodes[static_cast<size_t>(id)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const TensorType& type = sharded->graph.type(node.inputs[i]);
      for (const Placement& other : changed(placements.inputs[i], type, sharded->mesh)) {
        mutations.must_fail(placements.inputs[i], other,
                            sharded->place(id) + " input " + std::to_string(i) + " as " +
                                placement_text(other, sharded->mesh) + " instead of " +
                                placement_text(placements.inputs[i], sharded->mesh));
      }
    }
  }
  EXPECT_GT(mutations.count(), 100);
  EXPECT_EQ(mutations.missed(), 0) << "of " << mutations.count();
}

TEST_P(VerifySharding, CatchesEveryChangedResult) {
  const auto sharded = shard(GetParam());
  Mutations mutations(*sharded);
  for (NodeId id = 0; id < sharded->graph.num_nodes(); id += 3) {
    const Node& node = sharded->graph.node(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const TensorType& type = sharded->graph.type(node.outputs[i]);
      Placement& output = sharded->sharding.nodes[static_cast<size_t>(id)].outputs[i];
      Placement& value = sharded->sharding.values[static_cast<size_t>(node.outputs[i])];
      for (const Placement& other : changed(output, type, sharded->mesh)) {
        const std::string what = sharded->place(id) + " output " + std::to_string(i) + " as " +
                                 placement_text(other, sharded->mesh) + " instead of " +
                                 placement_text(output, sharded->mesh);
        mutations.must_fail(value, other, what + ", recorded only");
        // Both agree and are wrong.
        const Placement kept = value;
        value = other;
        mutations.must_fail(output, other, what);
        value = kept;
      }
    }
  }
  EXPECT_GT(mutations.count(), 100);
  EXPECT_EQ(mutations.missed(), 0) << "of " << mutations.count();
}

TEST_P(VerifySharding, CatchesAddendsThatAreAddedByAllOrByNone) {
  const auto sharded = shard(GetParam());
  Mutations mutations(*sharded);
  for (NodeId id = 0; id < sharded->graph.num_nodes(); ++id) {
    const Node& node = sharded->graph.node(id);
    auto& first_only = sharded->sharding.nodes[static_cast<size_t>(id)].first_only;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      for (AxisId axis = 0; axis < sharded->mesh.num_axes(); ++axis) {
        if (sharded->mesh.size(axis) == 1) continue;
        mutations.must_fail(first_only[i], first_only[i] ^ (1U << axis),
                            sharded->place(id) + " addend " + std::to_string(i) + " over " +
                                sharded->mesh.name(axis));
      }
    }
  }
  EXPECT_GT(mutations.count(), 100);
  EXPECT_EQ(mutations.missed(), 0) << "of " << mutations.count();
}

TEST_P(VerifySharding, CatchesStatesThatEndElsewhere) {
  const auto sharded = shard(GetParam());
  Mutations mutations(*sharded);
  for (const State& state : sharded->graph.states()) {
    Placement& stored = sharded->sharding.values[static_cast<size_t>(state.value)];
    Placement partial = stored;
    partial.partial = 1U << (sharded->mesh.size(0) > 1 ? 0 : 1);
    mutations.must_fail(stored, partial, state.name);
  }
  EXPECT_GT(mutations.count(), 10);
  EXPECT_EQ(mutations.missed(), 0);
}

INSTANTIATE_TEST_SUITE_P(Cuts, VerifySharding, ::testing::ValuesIn(kCuts), [](const auto& tested) {
  const Cut& cut = tested.param;
  return std::string(cut.family) + "_d" + std::to_string(cut.data) + "o" + std::to_string(cut.op) +
         (cut.sequence ? "s" : "") + "_z" + std::to_string(cut.zero);
});

}  // namespace
}  // namespace weft
