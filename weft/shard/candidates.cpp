#include "weft/shard/candidates.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "weft/base/check.h"
#include "weft/shard/pieces.h"

namespace weft {
namespace {

using Kind = AxisChoice::Kind;

/// Prices of local work in transferred bytes: a link moves about a twentieth of what memory does,
/// and a device does about a thousand operations while its link moves a byte.
constexpr double kBytesPerMemoryByte = 0.05;
constexpr double kBytesPerFlop = 1e-3;
/// Of two ways with the same bytes, the one with fewer calls.
constexpr double kBytesPerCall = 32;

std::string text_of(const TensorType& type) {
  return fmt::format("{}{}", static_cast<int>(type.dtype), shape_text(type.shape));
}

int find_factor(const ShardingRule& rule, std::string_view name) {
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    if (rule.factors[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool gives_gradient(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
    return id != kNoValue && graph.value(id).memory_class == MemoryClass::gradients;
  });
}

}  // namespace

int PlacementTable::intern(const Placement& placement) {
  const auto [at, fresh] =
      ids_.try_emplace(placement_key(placement), static_cast<int>(placements_.size()));
  if (fresh) placements_.push_back(placement);
  return at->second;
}

int PlacementTable::intern_type(const TensorType& type) {
  const auto [at, fresh] = type_ids_.try_emplace(text_of(type), static_cast<int>(types_.size()));
  if (fresh) types_.push_back(type);
  return at->second;
}

double PlacementTable::bytes(int type, int from, int to) {
  if (from == to) return 0.0;
  const uint64_t key = static_cast<uint64_t>(type) << 40 | static_cast<uint64_t>(from) << 20 |
                       static_cast<uint64_t>(to);
  const auto found = prices_.find(key);
  if (found != prices_.end()) return found->second;
  double price = 0;
  for (const Move& move :
       router_.route(types_[static_cast<size_t>(type)], at(from), at(to)).moves) {
    if (move.kind != MoveKind::slice) price += move.bytes + kBytesPerCall;
  }
  prices_.emplace(key, price);
  return price;
}

std::vector<AxisChoice> CandidateMaker::data_choices(const Graph& graph, const Node& node,
                                                     const NodeView& view) const {
  const bool update = node.phase == Phase::update || node.phase == Phase::verdict;
  // The dims of a gradient are those of its weight, whatever their number.
  const bool of_weight = view.rule.linear && (update || gives_gradient(graph, node));
  const int batch = of_weight ? -1 : find_factor(view.rule, "b");
  if (batch >= 0 && may_cut(view.rule, batch)) return {{Kind::factor, batch, 1}};
  if (view.rule.flat && update && rules_.flat_updates) return {{Kind::flat, -1, 1}};
  if (view.rule.flat && rules_.flat_gradients && gives_gradient(graph, node)) {
    return {{Kind::flat, -1, 1}};
  }
  if (view.rule.linear) return {{Kind::linear, -1, 1}, {Kind::replicate, -1, 1}};
  return {{Kind::replicate, -1, 1}};
}

std::vector<AxisChoice> CandidateMaker::expert_choices(const Graph& graph, const Node& node,
                                                       const NodeView& view) const {
  std::vector<AxisChoice> choices = data_choices(graph, node, view);
  const bool batched = choices.front().kind == Kind::factor;
  const auto add = [&](const AxisChoice& choice) {
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) {
      choices.push_back(choice);
    }
  };
  if (batched && view.rule.linear) add({Kind::linear, -1, 1});
  // Without a batch (gradients, updates) the leading dim may be that of the experts.
  const int experts =
      batched ? find_factor(view.rule, "e")
      : view.rule.inputs.empty() || view.rule.inputs[0].empty() || view.rule.inputs[0][0].empty()
          ? -1
          : view.rule.inputs[0][0][0];
  if (experts >= 0 && may_cut(view.rule, experts)) add({Kind::factor, experts, 1});
  return choices;
}

std::vector<AxisChoice> CandidateMaker::op_choices(const NodeView& view) const {
  std::vector<AxisChoice> choices;
  const int64_t ways = table_.router().mesh().size(rules_.op);
  for (size_t i = 0; i < view.rule.factors.size(); ++i) {
    const auto factor = static_cast<int>(i);
    const Factor& info = view.rule.factors[i];
    if (info.name == "b" || (info.name == "s" && !rules_.sequence)) continue;
    if (!may_cut(view.rule, factor)) continue;
    // Blocks matter only where pieces are uneven; they are given in elements of a dim.
    std::set<int64_t> blocks = {1};
    const auto add_blocks = [&](const std::vector<ShardingRule::Dims>& operands) {
      for (const ShardingRule::Dims& dims : operands) {
        for (const auto& dim : dims) {
          const int64_t inner = elements_per_factor(view.rule, dim, factor);
          if (inner == 0) continue;
          for (const int64_t block : rules_.blocks) {
            if (block % inner == 0 && info.size % (block / inner) == 0)
              blocks.insert(block / inner);
          }
        }
      }
    };
    add_blocks(view.rule.inputs);
    add_blocks(view.rule.outputs);
    for (const int64_t block : blocks) {
      if (block > 1 && info.size % (block * ways) == 0) continue;
      choices.push_back({Kind::factor, factor, block});
    }
  }
  if (view.rule.linear) choices.push_back({Kind::linear, -1, 1});
  choices.push_back({Kind::replicate, -1, 1});
  return choices;
}

Candidate CandidateMaker::make(const NodeView& view, const Node& node, NodeStrategy strategy) {
  const Mesh& mesh = table_.router().mesh();
  Candidate candidate;
  const NodePlacements placements = place_operands(view, strategy, mesh);
  double bytes = 0;
  const auto number = [&](const std::vector<TensorType>& types, const std::vector<Placement>& all,
                          std::vector<int>& ids) {
    for (size_t i = 0; i < types.size(); ++i) {
      ids.push_back(types[i].present() ? table_.intern(all[i]) : -1);
      if (types[i].present()) bytes += local_bytes(types[i], all[i], mesh);
    }
  };
  number(view.inputs, placements.inputs, candidate.inputs);
  number(view.outputs, placements.outputs, candidate.outputs);
  double flops =
      view.def->cost == nullptr ? 0 : view.def->cost(view.inputs, view.outputs, node.attrs).flops;
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    const Kind kind = strategy[static_cast<size_t>(axis)].kind;
    if (kind == Kind::factor || kind == Kind::flat) flops /= static_cast<double>(mesh.size(axis));
  }
  candidate.work = bytes * kBytesPerMemoryByte + flops * kBytesPerFlop;
  candidate.strategy = std::move(strategy);
  return candidate;
}

const CandidateSet& CandidateMaker::of(const Graph& graph, const Node& node) {
  std::string key = fmt::format("{} {}|", static_cast<int>(node.op), attrs_text(node.attrs));
  for (const ValueId id : node.inputs) key += text_of(graph.type(id)) + ",";
  key += fmt::format("|{}{}", static_cast<int>(node.phase), gives_gradient(graph, node));
  const auto [at, fresh] = known_.try_emplace(key);
  CandidateSet& set = at->second;
  if (!fresh) return set;
  set.view = view_node(graph, node);
  const Mesh& mesh = table_.router().mesh();
  std::vector<NodeStrategy> strategies = {NodeStrategy(static_cast<size_t>(mesh.num_axes()))};
  const auto extend = [&](AxisId axis, const std::vector<AxisChoice>& choices) {
    if (axis < 0 || mesh.size(axis) == 1) return;
    std::vector<NodeStrategy> more;
    for (const NodeStrategy& strategy : strategies) {
      for (const AxisChoice& choice : choices) {
        more.push_back(strategy);
        more.back()[static_cast<size_t>(axis)] = choice;
      }
    }
    strategies = std::move(more);
  };
  for (const AxisId axis : rules_.data) {
    extend(axis, axis == rules_.expert ? expert_choices(graph, node, set.view)
                                       : data_choices(graph, node, set.view));
  }
  extend(rules_.op, op_choices(set.view));
  for (NodeStrategy& strategy : strategies) {
    set.candidates.push_back(make(set.view, node, std::move(strategy)));
  }
  return set;
}

}  // namespace weft
