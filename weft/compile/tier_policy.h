// Which tier every state, gradient and activation lives in: what the configuration says, and for
// what it leaves open, the least that makes the plan fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/compile/offload.h"
#include "weft/config/config.h"
#include "weft/plan/plan.h"

namespace weft {

/// Bytes per rank that a choice may use; 0 = no limit, negative = the tier is not there.
struct TierBudgets {
  int64_t device = 0;
  int64_t host = 0;
  int64_t nvme = -1;
  int64_t host_reserve = 0;  // of `host`, for what is only passing through
  int64_t piece = 0;         // most bytes of a tensor of an update piece; 0 = the usual
};
TierBudgets tier_budgets(const Config& config, int64_t ranks_per_node);

class TierPolicy {
 public:
  /// `graph`: the lowered training step of this rank. Reads the configuration's pins: [offload] and
  /// [offload.groups]. UsageError for a pin on a tier that is off and for a pattern that matches
  /// nothing.
  TierPolicy(const Config& config, const Graph& graph, const TierBudgets& budgets);

  const TierChoice& choice() const { return choice_; }
  /// `plan`, made with choice(), is over its device budget: moves more off the device. False when
  /// nothing movable is left.
  bool move_more(const Plan& plan);
  /// One line per decision, for plan.txt.
  const std::vector<std::string>& reasons() const { return reasons_; }

 private:
  struct Item {
    std::string name;
    int64_t bytes = 0;
  };
  enum class Class : uint8_t { optimizer, gradients, activations, weights };

  void collect(const Graph& graph);
  void collect_activations(const Graph& graph);
  void apply_policy(const OffloadPolicy& policy, Class what);
  void apply_groups(const Config& config);
  void settle_update(const Config& config);
  void put(Class what, const Item& item, Tier tier);
  bool room(Tier tier, int64_t bytes) const;
  /// Moves items of at least `least` bytes until `missing` bytes have moved.
  bool move_class(Class what, int64_t missing, int64_t least);
  std::vector<Item>& items(Class what) { return items_[static_cast<size_t>(what)]; }

  const Config& config_;
  TierBudgets budgets_;
  TierChoice choice_;
  std::vector<Item> items_[4];    // not yet placed, largest first
  int64_t used_[kNumTiers] = {};  // bytes put into host and nvme
  std::vector<std::string> reasons_;
};

}  // namespace weft
