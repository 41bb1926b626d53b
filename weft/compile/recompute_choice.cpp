#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "weft/compile/layer_of.h"
#include "weft/compile/recompute.h"
#include "weft/compile/recompute_map.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

/// Two scopes whose bytes per second differ by less are equally good.
constexpr double kAlike = 0.99;

class Prices {
 public:
  Prices(const Graph& graph, const MachineSpec& machine) : graph_(graph), machine_(machine) {}

  double seconds(const Node& node) const {
    const OpDef& def = op_def(node.op);
    if (def.cost == nullptr) return machine_.step_overhead;
    const std::vector<TensorType> inputs = graph_.input_types(node);
    const OpCost cost = def.cost(inputs, graph_.output_types(node), node.attrs);
    DType dtype = DType::f32;
    const auto floating = std::find_if(inputs.begin(), inputs.end(), [](const TensorType& type) {
      return is_floating(type.dtype);
    });
    if (floating != inputs.end()) dtype = floating->dtype;
    return std::max(cost.flops / machine_.flops(dtype), cost.bytes / machine_.memory_bandwidth) +
           machine_.step_overhead;
  }

 private:
  const Graph& graph_;
  const MachineSpec& machine_;
};

/// One layer of one micro-batch, and what it would cost to drop the values of some of its scopes.
class Layer {
 public:
  Layer(const Graph& graph, const RecomputeMap& map, const Prices& prices)
      : graph_(graph), map_(map), prices_(prices) {}

  void add(NodeId id) {
    for (const ValueId output : graph_.node(id).outputs) {
      if (output == kNoValue || !map_.saved(output)) continue;
      const int64_t bytes = graph_.type(output).bytes();
      saved_bytes_ += bytes;
      if (!map_.inside(output)) continue;
      candidates_[map_.scope(id)] += bytes;
      values_.push_back(output);
    }
  }

  /// Adds scopes to `all` until `share` of the saved bytes is gone; returns the seconds spent of
  /// `limit`.
  double choose(double limit, double share, std::set<std::string>& all) const {
    std::set<std::string> chosen;
    Effect now;
    while (static_cast<double>(now.bytes) < share * static_cast<double>(saved_bytes_)) {
      const std::optional<std::string> best = next(chosen, now, limit);
      if (!best) break;
      chosen.insert(*best);
      now = effect(chosen);
    }
    all.merge(chosen);
    return now.seconds;
  }

 private:
  struct Effect {
    int64_t bytes = 0;   // no longer held until the backward pass
    double seconds = 0;  // added work
  };

  /// The scope that saves most bytes per second within the limit; among equals the cheaper one.
  std::optional<std::string> next(const std::set<std::string>& chosen, const Effect& now,
                                  double limit) const {
    std::optional<std::string> best;
    double best_rate = 0;
    double best_seconds = 0;
    for (const auto& [scope, bytes] : candidates_) {
      if (chosen.contains(scope)) continue;
      std::set<std::string> with = chosen;
      with.insert(scope);
      const Effect then = effect(with);
      if (then.bytes <= now.bytes || then.seconds > limit) continue;
      const double seconds = std::max(then.seconds - now.seconds, 1e-12);
      const double rate = static_cast<double>(then.bytes - now.bytes) / seconds;
      const bool better = rate * kAlike > best_rate;
      const bool cheaper = rate > best_rate * kAlike && seconds < best_seconds;
      if (best && !better && !cheaper) continue;
      best = scope;
      best_rate = rate;
      best_seconds = seconds;
    }
    return best;
  }

  Effect effect(const std::set<std::string>& chosen) const {
    Effect result;
    std::set<NodeId> made;
    std::set<ValueId> held;
    for (const ValueId value : values_) {
      const NodeId producer = graph_.value(value).producer;
      if (!chosen.contains(map_.scope(producer))) continue;
      result.bytes += graph_.type(value).bytes();
      make(producer, chosen, made, held);
    }
    for (const NodeId id : made) result.seconds += prices_.seconds(graph_.node(id));
    for (const ValueId value : held) result.bytes -= graph_.type(value).bytes();
    return result;
  }

  /// Follows the rule of recompute(): kept values are read, all others made.
  void make(NodeId id, const std::set<std::string>& chosen, std::set<NodeId>& made,
            std::set<ValueId>& held) const {
    if (!made.insert(id).second) return;
    for (const ValueId input : graph_.node(id).inputs) {
      const NodeId producer = input == kNoValue ? kNoNode : graph_.value(input).producer;
      if (producer == kNoNode) continue;
      const bool inside = map_.inside(input);
      if (inside && (chosen.contains(map_.scope(producer)) || !map_.saved(input))) {
        make(producer, chosen, made, held);
      } else if (!map_.saved(input)) {
        held.insert(input);
      }
    }
  }

  const Graph& graph_;
  const RecomputeMap& map_;
  const Prices& prices_;
  int64_t saved_bytes_ = 0;
  std::vector<ValueId> values_;
  std::map<std::string, int64_t> candidates_;  // scope -> bytes
};

}  // namespace

RecomputeChoice choose_selective(const Graph& graph, const MachineSpec& machine,
                                 const SelectiveBounds& bounds) {
  const RecomputeMap map(graph, 1);
  const Prices prices(graph, machine);
  // All micro-batches are alike: the first one decides.
  std::map<int64_t, Layer> layers;
  double step_seconds = 0;
  int32_t micros = 1;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    step_seconds += prices.seconds(node);
    micros = std::max(micros, node.micro + 1);
    if (map.segment(id) == RecomputeMap::kOutside || node.micro != 0) continue;
    layers.try_emplace(layer_of(node.scope), graph, map, prices).first->second.add(id);
  }
  RecomputeChoice choice;
  const double limit =
      layers.empty() ? 0.0
                     : bounds.cost * step_seconds / micros / static_cast<double>(layers.size());
  // What one layer leaves of its share, the next one may spend: scopes come in lumps.
  double left = 0;
  for (const auto& [number, layer] : layers) {
    left += limit;
    left -= layer.choose(left, bounds.drop, choice.scopes);
  }
  return choice;
}

}  // namespace weft
