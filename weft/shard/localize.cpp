#include "weft/shard/localize.h"

#include <fmt/core.h>

#include <map>
#include <tuple>

#include "weft/base/check.h"
#include "weft/shard/pieces.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Localizer {
 public:
  Localizer(const Graph& graph, const Sharding& sharding, Router& router, int64_t rank)
      : graph_(graph),
        sharding_(sharding),
        router_(router),
        mesh_(router.mesh()),
        rank_(rank),
        local_(at(graph.num_values()), kNoValue),
        is_state_(at(graph.num_values()), false),
        early_(at(graph.num_values())) {}

  Graph run() {
    add_inputs();
    add_states();
    find_early_moves();
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) add_node(id);
    for (const auto& [name, id] : graph_.outputs()) {
      result_.set_scope(name);
      result_.set_output(name, moved(id, whole_placement(graph_.type(id).shape.size())));
    }
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue) continue;
      result_.set_state_result(state.name, moved(state.result, sharding_.values[at(state.value)]));
    }
    return std::move(result_);
  }

 private:
  TensorType local_type(const TensorType& type, const Placement& placement) const {
    return {type.dtype, local_shape(type.shape, placement, mesh_, rank_)};
  }

  void add_inputs() {
    for (const ValueId id : graph_.inputs()) {
      const Value& value = graph_.value(id);
      local_[at(id)] = result_.add_input(
          value.name, local_type(value.type, sharding_.values[at(id)]), value.batched);
    }
  }

  void add_states() {
    for (const State& logical : graph_.states()) {
      const Placement& placement = sharding_.values[at(logical.value)];
      const auto box = local_box(logical.type.shape, placement, mesh_, rank_);
      State state = logical;
      state.value = kNoValue;
      state.result = kNoValue;
      state.type = local_type(logical.type, placement);
      LogicalSlice& slice = state.logical;
      if (slice.begin.empty()) slice.begin.assign(slice.shape.size(), 0);
      for (size_t i = 0; i < box.size(); ++i) slice.begin[i] += box[i].begin;
      if (!placement.flat.empty()) {
        slice.extent.clear();
        for (const CutPiece& piece : box) slice.extent.push_back(piece.size);
        slice.flat_begin = flat_piece(logical.type.shape, placement, mesh_, rank_).begin;
      }
      is_state_[at(logical.value)] = true;
      local_[at(logical.value)] = result_.add_state(std::move(state));
    }
  }

  /// Placements that values should move to as soon as they are made.
  void find_early_moves() {
    std::vector<bool> read_soon(at(graph_.num_values()), false);
    std::vector<std::vector<const Placement*>> late(at(graph_.num_values()));
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      const bool ends = node.phase == Phase::verdict || node.phase == Phase::update;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        if (!ends) read_soon[at(node.inputs[i])] = true;
        late[at(node.inputs[i])].push_back(&sharding_.nodes[at(id)].inputs[i]);
      }
    }
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const NodeId producer = graph_.value(id).producer;
      if (producer == kNoNode || read_soon[at(id)]) continue;
      if (graph_.node(producer).phase != Phase::backward &&
          graph_.node(producer).phase != Phase::forward) {
        continue;
      }
      for (const Placement* placement : late[at(id)]) early_[at(id)].push_back(*placement);
    }
    for (const auto& [name, id] : graph_.outputs()) {
      early_[at(id)].push_back(whole_placement(graph_.type(id).shape.size()));
    }
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue) continue;
      early_[at(state.result)].push_back(sharding_.values[at(state.value)]);
    }
  }

  void add_node(NodeId id) {
    const Node& node = graph_.node(id);
    const NodePlacements& placements = sharding_.nodes[at(id)];
    const OpDef& def = op_def(node.op);
    enter(node);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(operand(node, placements, i));
    }
    Attrs attrs = node.attrs;
    if (def.localize != nullptr) {
      def.localize(
          attrs, sharding_.rules[at(id)],
          factor_pieces(sharding_.rules[at(id)], sharding_.strategies[at(id)], mesh_, rank_));
    }
    enter(node);
    const std::vector<ValueId> outputs =
        result_.add_node(node.op, std::move(inputs), std::move(attrs));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      take_output(node, node.outputs[i], outputs[i], placements.outputs[i]);
    }
    for (const ValueId value : node.outputs) {
      if (value == kNoValue) continue;
      for (const Placement& placement : early_[at(value)]) moved(value, placement);
    }
  }

  void enter(const Node& node) {
    result_.set_scope(node.scope);
    result_.set_phase(node.phase);
    result_.set_micro(node.micro);
    phase_ = node.phase;
  }

  ValueId operand(const Node& node, const NodePlacements& placements, size_t index) {
    const ValueId id = node.inputs[index];
    if (id == kNoValue) return kNoValue;
    for (AxisId axis = 0; axis < mesh_.num_axes(); ++axis) {
      if ((placements.first_only[index] >> axis & 1U) != 0 && mesh_.coord(rank_, axis) != 0) {
        return kNoValue;
      }
    }
    return moved(id, placements.inputs[index]);
  }

  void take_output(const Node& node, ValueId logical, ValueId made, const Placement& placement) {
    const TensorType expected = local_type(graph_.type(logical), placement);
    WEFT_CHECK(result_.type(made) == expected, "shard",
               "{} [{}] gives {} on rank {}, expected the piece {} of {}", op_def(node.op).name,
               node.scope, shape_text(result_.type(made).shape), rank_, shape_text(expected.shape),
               shape_text(graph_.type(logical).shape));
    result_.value(made).memory_class = graph_.value(logical).memory_class;
    local_[at(logical)] = made;
  }

  /// The local piece of `id` under `placement`; moves it there unless that was done before.
  ValueId moved(ValueId id, const Placement& placement) {
    const Placement& stored = sharding_.values[at(id)];
    if (stored == placement) return local_[at(id)];
    const TensorType& type = graph_.type(id);
    const Route& route = router_.route(type, stored, placement);
    // Gathered weights live for one pass of one micro-batch: keeping them would undo the cut.
    const bool per_pass = is_state_[at(id)] && route.bytes > 0;
    const int32_t pass = per_pass ? result_.micro() * 4 + static_cast<int32_t>(phase_) : -1;
    ValueId value = local_[at(id)];
    Placement here = stored;
    for (const Move& move : route.moves) {
      const auto key = std::tuple(id, placement_text(move.after, mesh_), pass);
      const auto known = moves_.find(key);
      if (known != moves_.end()) {
        value = known->second;
      } else {
        const MemoryClass memory_class =
            per_pass ? MemoryClass::prefetch : graph_.value(id).memory_class;
        value = emit_move(result_, value, type, here, move, mesh_, rank_);
        result_.value(value).memory_class = memory_class;
        moves_.emplace(key, value);
      }
      here = move.after;
    }
    return value;
  }

  const Graph& graph_;
  const Sharding& sharding_;
  Router& router_;
  const Mesh& mesh_;
  int64_t rank_;
  Graph result_;
  std::vector<ValueId> local_;  // per logical value: as its producer gives it
  std::vector<bool> is_state_;
  std::vector<std::vector<Placement>> early_;
  Phase phase_ = Phase::forward;
  std::map<std::tuple<ValueId, std::string, int32_t>, ValueId> moves_;
};

}  // namespace

Graph localize(const Graph& graph, const Sharding& sharding, Router& router, int64_t rank) {
  return Localizer(graph, sharding, router, rank).run();
}

}  // namespace weft
