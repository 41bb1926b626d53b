#include "weft/shard/propagate.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/shard/candidates.h"
#include "weft/shard/pieces.h"

namespace weft {
namespace {

/// Weights never move over the op axis: whoever reads one takes it as it is.
constexpr double kNever = 1e18;
constexpr int kMaxSweeps = 8;

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Propagation {
 public:
  Propagation(const Graph& graph, Router& router, const ShardOptions& options)
      : graph_(graph),
        options_(options),
        mesh_(router.mesh()),
        table_(router),
        maker_(table_, rules()) {
    produced_.assign(at(graph.num_values()), -1);
    is_state_.assign(at(graph.num_values()), false);
    needs_.resize(at(graph.num_values()));
    types_.reserve(at(graph.num_values()));
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      types_.push_back(table_.intern_type(graph.type(id)));
    }
  }

  Sharding run() {
    place_inputs();
    pin_given_nodes();
    place_states();
    fix_ends();
    expect_gradients(1);
    expect_parts(1);
    choose_in_order();
    expect_parts(-1);
    expect_gradients(-1);
    improve();
    return result();
  }

 private:
  CandidateRules rules() const {
    CandidateRules rules;
    rules.data = mesh_.batch_axes();
    rules.expert = mesh_.find("expert");
    rules.op = mesh_.find("op");
    rules.sequence = options_.sequence;
    rules.flat_updates = options_.zero >= 1;
    rules.flat_gradients = options_.zero >= 2;
    for (const ShardEntry& entry : options_.entries) {
      if (entry.block > 1) rules.blocks.push_back(entry.block);
    }
    return rules;
  }

  void place_inputs() {
    for (const ValueId id : graph_.inputs()) {
      const Value& value = graph_.value(id);
      Placement placement = whole_placement(value.type.shape.size());
      if (value.batched) placement.dims[0].axes = mesh_.batch_axes();
      produced_[at(id)] = table_.intern(canonical(std::move(placement), value.type.shape, mesh_));
    }
    for (const State& state : graph_.states()) is_state_[at(state.value)] = true;
  }

  const ShardEntry* entry_for(const std::string& scope) const {
    for (const ShardEntry& entry : options_.entries) {
      if (matches_module(entry.pattern, scope)) return &entry;
    }
    return nullptr;
  }

  /// The entry's weight operand exists, or the entry speaks of activations only.
  static bool concerns(const ShardEntry& entry, const Node& node, const NodeView& view) {
    if (!entry.operands.contains("weight")) return true;
    for (size_t i = 0; i < view.def->inputs.size() && i < node.inputs.size(); ++i) {
      if (view.def->inputs[i] == "w" || view.def->inputs[i] == "table") {
        return node.inputs[i] != kNoValue;
      }
    }
    return false;
  }

  void pin_given_nodes() {
    pinned_.resize(at(graph_.num_nodes()));
    std::set<std::pair<int32_t, std::string>> done;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (node.phase != Phase::forward) continue;
      const ShardEntry* entry = entry_for(node.scope);
      if (entry == nullptr || done.contains({node.micro, node.scope})) continue;
      const NodeView view = view_node(graph_, node);
      if (!concerns(*entry, node, view)) continue;
      done.emplace(node.micro, node.scope);
      NodeStrategy strategy = entry_strategy(*entry, node, view, mesh_);
      for (const AxisId data : mesh_.batch_axes()) {
        if (strategy[at(data)].kind == AxisChoice::Kind::replicate) {
          strategy[at(data)] = maker_.data_choices(graph_, node, view)[0];
        }
      }
      pinned_[at(id)] = {maker_.make(view, node, std::move(strategy))};
      take_state_placements(node, pinned_[at(id)][0], *entry);
    }
  }

  void take_state_placements(const Node& node, const Candidate& candidate,
                             const ShardEntry& entry) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !is_state_[at(id)]) continue;
      const auto [found, fresh] = weights_.try_emplace(graph_.value(id).name, candidate.inputs[i]);
      if (fresh || found->second == candidate.inputs[i]) continue;
      throw UsageError("parallel.shard",
                       fmt::format("\"{}\" cuts {} as {}, another module that shares it as {}; "
                                   "expected the same cut for both",
                                   entry.pattern, graph_.value(id).name,
                                   placement_text(table_.at(candidate.inputs[i]), mesh_),
                                   placement_text(table_.at(found->second), mesh_)));
    }
  }

  void place_states() {
    for (const State& state : graph_.states()) {
      const auto found = weights_.find(parameter_name(state.name));
      Placement placement = found == weights_.end() ? whole_placement(state.type.shape.size())
                                                    : table_.at(found->second);
      const bool cut = state.role == StateRole::weight ? options_.zero >= 3 : options_.zero >= 1;
      if (cut) placement.flat = free_batch_axes(placement);
      produced_[at(state.value)] =
          table_.intern(canonical(std::move(placement), state.type.shape, mesh_));
    }
  }

  /// The axes that cut the batch but no dim here: over them a parameter is replicated.
  std::vector<AxisId> free_batch_axes(const Placement& placement) const {
    std::vector<AxisId> axes = mesh_.batch_axes();
    std::erase_if(axes, [&](AxisId axis) { return placement.cuts(axis); });
    return axes;
  }

  /// Outputs are read whole, state results where the state is.
  void fix_ends() {
    for (const auto& [name, id] : graph_.outputs()) {
      need(id, table_.intern(whole_placement(graph_.type(id).shape.size())), 1);
    }
    for (const State& state : graph_.states()) {
      if (state.result != kNoValue) need(state.result, produced_[at(state.value)], 1);
    }
  }

  /// The first choice looks at operands only; a gradient is better made where its weight is. Adds
  /// (or takes back) readers that stand for the update at the end.
  void expect_gradients(int change) {
    std::vector<int> expected(at(graph_.num_values()), -1);
    for (NodeId id = graph_.num_nodes() - 1; id >= 0; --id) {
      const Node& node = graph_.node(id);
      if (node.phase == Phase::update) {
        expect_operands(node, expected);
        continue;
      }
      if (node.outputs.size() != 1 || expected[at(node.outputs[0])] < 0) continue;
      const int placement = expected[at(node.outputs[0])];
      need(node.outputs[0], placement, change);
      const ShardingRule rule = view_node(graph_, node).rule;
      if (!rule.linear || !rule.linear_inputs.empty()) continue;
      for (const ValueId input : node.inputs) expected[at(input)] = placement;
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (node.outputs.size() == 1 || node.phase == Phase::update) continue;
      for (const ValueId output : node.outputs) {
        if (output != kNoValue && expected[at(output)] >= 0) {
          need(output, expected[at(output)], change);
        }
      }
    }
  }

  /// Who reads a weight that is cut takes parts of the other operand (rows of its own experts): the
  /// nodes before it must make parts, since a whole value cannot become partial.
  void expect_parts(int change) {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      const NodeView view = view_node(graph_, node);
      if (view.rule.parts.empty()) continue;
      const std::vector<Candidate>& all =
          pinned_[at(id)].empty() ? maker_.of(graph_, node).candidates : pinned_[at(id)];
      const Candidate* wanted = nullptr;
      for (const Candidate& candidate : all) {
        if (reads_states_as_stored(node, candidate) && takes_parts(view, candidate)) {
          wanted = &candidate;
        }
      }
      if (wanted == nullptr) continue;
      for (const PartInput& part : view.rule.parts) {
        const auto input = static_cast<size_t>(part.input);
        if (node.inputs[input] == kNoValue) continue;
        need(node.inputs[input], wanted->inputs[input], change);
      }
    }
  }

  bool reads_states_as_stored(const Node& node, const Candidate& candidate) const {
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !is_state_[at(id)]) continue;
      any = true;
      if (table_.at(produced_[at(id)]).dims != table_.at(candidate.inputs[i]).dims) return false;
    }
    return any;
  }

  static bool takes_parts(const NodeView& view, const Candidate& candidate) {
    return std::any_of(
        candidate.strategy.begin(), candidate.strategy.end(), [&](const AxisChoice& choice) {
          return choice.kind == AxisChoice::Kind::factor &&
                 std::any_of(view.rule.parts.begin(), view.rule.parts.end(),
                             [&](const PartInput& part) { return part.factor == choice.factor; });
        });
  }

  void expect_operands(const Node& node, std::vector<int>& expected) {
    const ValueId state = node.inputs[0];
    Placement placement = table_.at(produced_[at(state)]);
    placement.flat.clear();
    for (const AxisId axis : free_batch_axes(placement)) {
      if (mesh_.size(axis) > 1) placement.partial |= 1U << axis;
    }
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || is_state_[at(input)]) continue;
      if (graph_.type(input) == graph_.type(state)) expected[at(input)] = table_.intern(placement);
    }
  }

  void need(ValueId id, int placement, int change) {
    auto& list = needs_[at(id)];
    for (auto& [known, count] : list) {
      if (known != placement) continue;
      count += change;
      if (count == 0) std::erase_if(list, [](const auto& entry) { return entry.second == 0; });
      return;
    }
    list.emplace_back(placement, change);
  }

  const std::vector<Candidate>& candidates(NodeId id) {
    if (!pinned_[at(id)].empty()) return pinned_[at(id)];
    return sets_[at(id)]->candidates;
  }

  double move_price(ValueId id, int from, int to) {
    if (from == to) return 0;
    if (is_state_[at(id)] && table_.at(from).dims != table_.at(to).dims) return kNever;
    return table_.bytes(types_[at(id)], from, to);
  }

  double price(const Node& node, const Candidate& candidate) {
    double total = candidate.work;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      const auto& others = needs_[at(id)];
      const bool shared = std::any_of(others.begin(), others.end(), [&](const auto& entry) {
        return entry.first == candidate.inputs[i];
      });
      // What another node already moves is there; weights are priced whoever else reads them.
      if (shared && !is_state_[at(id)]) continue;
      total += move_price(id, produced_[at(id)], candidate.inputs[i]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNoValue) continue;
      for (const auto& [wanted, count] : needs_[at(id)]) {
        if (!reachable(candidate.outputs[i], wanted)) return kNever * 10;
        total += move_price(id, candidate.outputs[i], wanted);
      }
    }
    return total;
  }

  /// A value cannot become partial.
  bool reachable(int from, int to) const {
    return (table_.at(to).partial & ~table_.at(from).partial) == 0;
  }

  bool inputs_reachable(const Node& node, const Candidate& candidate) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      if (!reachable(produced_[at(node.inputs[i])], candidate.inputs[i])) return false;
    }
    return true;
  }

  int best(NodeId id) {
    const Node& node = graph_.node(id);
    const std::vector<Candidate>& all = candidates(id);
    int best = -1;
    double least = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!inputs_reachable(node, all[i])) continue;
      const double cost = price(node, all[i]);
      if (best < 0 || cost < least * (1 - 1e-12)) {
        best = static_cast<int>(i);
        least = cost;
      }
    }
    WEFT_CHECK(best >= 0, "shard", "no strategy fits {} [{}]", op_def(node.op).name, node.scope);
    return best;
  }

  void set(NodeId id, int choice, int change) {
    const Node& node = graph_.node(id);
    const Candidate& candidate = candidates(id)[static_cast<size_t>(choice)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) need(node.inputs[i], candidate.inputs[i], change);
    }
    if (change < 0) return;
    choice_[at(id)] = choice;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) produced_[at(node.outputs[i])] = candidate.outputs[i];
    }
  }

  void choose_in_order() {
    choice_.assign(at(graph_.num_nodes()), -1);
    sets_.assign(at(graph_.num_nodes()), nullptr);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      sets_[at(id)] = &maker_.of(graph_, graph_.node(id));
      set(id, best(id), 1);
    }
  }

  /// Changes one node at a time as long as that lowers the total.
  bool revisit(NodeId id) {
    const int old = choice_[at(id)];
    set(id, old, -1);
    const int next = best(id);
    set(id, next, 1);
    return next != old;
  }

  void improve() {
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      bool changed = false;
      for (NodeId id = graph_.num_nodes() - 1; id >= 0; --id) changed |= revisit(id);
      for (NodeId id = 0; id < graph_.num_nodes(); ++id) changed |= revisit(id);
      if (!changed) return;
    }
  }

  Sharding result() {
    Sharding sharding;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Candidate& chosen = candidates(id)[at(choice_[at(id)])];
      const NodeView& view = sets_[at(id)]->view;
      sharding.rules.push_back(view.rule);
      sharding.strategies.push_back(chosen.strategy);
      sharding.nodes.push_back(place_operands(view, chosen.strategy, mesh_));
    }
    for (const int placement : produced_) {
      sharding.values.push_back(placement < 0 ? Placement{} : table_.at(placement));
    }
    return sharding;
  }

  const Graph& graph_;
  const ShardOptions& options_;
  const Mesh& mesh_;
  PlacementTable table_;
  CandidateMaker maker_;
  std::vector<int> types_;                               // per value
  std::vector<int> produced_;                            // per value: placement
  std::vector<bool> is_state_;                           // per value
  std::vector<std::vector<std::pair<int, int>>> needs_;  // per value: placement, readers
  std::map<std::string, int> weights_;                   // parameter -> placement
  std::vector<std::vector<Candidate>> pinned_;           // per node: empty or one
  std::vector<const CandidateSet*> sets_;                // per node
  std::vector<int> choice_;                              // per node
};

}  // namespace

Sharding propagate(const Graph& graph, Router& router, const ShardOptions& options) {
  return Propagation(graph, router, options).run();
}

}  // namespace weft
