#include "weft/compile/tier_policy.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/shard/entries.h"

namespace weft {
namespace {

constexpr const char* kClassNames[] = {"optimizer", "gradients", "activations", "weights"};

/// Smaller values are not worth a transfer.
constexpr int64_t kLeastBytes = 4096;

/// What is smaller moves only when all that is larger has: a transfer of its own costs more than
/// its bytes.
constexpr int64_t kSmallBytes = int64_t{64} << 10;

/// Of the first update pieces that a step leaves ready for the next: about the states of the
/// embedding of a small model, which the first kernel waits for.
constexpr int64_t kAheadBytes = int64_t{512} << 20;

/// So many bytes of fp32 states are whole blocks of the cold tier as bf16 weights too.
constexpr int64_t kChunkUnit = 8192;

Tier parse_tier(const std::string& name) {
  return name == "host" ? Tier::host : name == "nvme" ? Tier::nvme : Tier::device;
}

}  // namespace

TierBudgets tier_budgets(const Config& config, int64_t ranks_per_node) {
  const int64_t share = std::max<int64_t>(1, ranks_per_node);
  TierBudgets budgets;
  budgets.device = config.memory.device.value_or(0);
  budgets.host = config.memory.host.value_or(0) / share;
  if (!config.memory.nvme.empty()) budgets.nvme = config.memory.nvme_limit.value_or(0) / share;
  return budgets;
}

TierPolicy::TierPolicy(const Config& config, const Graph& graph, const TierBudgets& budgets)
    : config_(config), budgets_(budgets) {
  collect(graph);
  collect_activations(graph);
  apply_groups(config);
  apply_policy(config.offload.optimizer, Class::optimizer);
  apply_policy(config.offload.weights, Class::weights);
  apply_policy(config.offload.gradients, Class::gradients);
  apply_policy(config.offload.activations, Class::activations);
  settle_update(config);
}

void TierPolicy::collect(const Graph& graph) {
  for (const State& state : graph.states()) {
    const int64_t bytes = state.type.bytes();
    if (bytes == 0 || state.pinned) continue;
    const bool weight = state.role == StateRole::weight;
    items(weight ? Class::weights : Class::optimizer).push_back({state.name, bytes});
    const bool updated = state.result != kNoValue && state.slot.empty();
    const bool master =
        state.role == StateRole::master || graph.find_state(state.name + "@master") == nullptr;
    if (updated && master) {
      items(Class::gradients).push_back({parameter_name(state.name), state.type.elements() * 4});
    }
  }
}

/// What crosses from the forward into the backward pass of a micro-batch.
void TierPolicy::collect_activations(const Graph& graph) {
  std::vector<bool> crosses(static_cast<size_t>(graph.num_values()), false);
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::backward) continue;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      const NodeId producer = graph.value(input).producer;
      if (producer == kNoNode || graph.node(producer).phase != Phase::forward) continue;
      crosses[static_cast<size_t>(input)] = true;
    }
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (!crosses[static_cast<size_t>(id)] || value.memory_class != MemoryClass::activations)
      continue;
    if (value.type.bytes() < kLeastBytes) continue;
    items(Class::activations).push_back({value.name, value.type.bytes()});
  }
  for (auto& list : items_) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  }
}

void TierPolicy::put(Class what, const Item& item, Tier tier) {
  used_[static_cast<size_t>(tier)] += item.bytes;
  if (tier == Tier::device) return;
  switch (what) {
    case Class::optimizer:
    case Class::weights: choice_.homes[item.name] = tier; break;
    case Class::gradients: choice_.gradients[item.name] = tier; break;
    case Class::activations: choice_.activations[item.name] = tier; break;
  }
}

void TierPolicy::apply_policy(const OffloadPolicy& policy, Class what) {
  if (policy.tier == "auto" && policy.fractions.empty()) return;
  const std::string key = fmt::format("offload.{}", kClassNames[static_cast<size_t>(what)]);
  const auto require = [&](Tier tier) {
    if (tier == Tier::nvme && budgets_.nvme < 0) {
      throw UsageError(key,
                       "got nvme without folders, expected memory.nvme = [\"/folder\"]; try "
                       "setting memory.nvme");
    }
  };
  std::vector<Item> all;
  all.swap(items(what));
  if (policy.fractions.empty()) {
    const Tier tier = parse_tier(policy.tier);
    require(tier);
    for (const Item& item : all) put(what, item, tier);
    reasons_.push_back(fmt::format("{} on {}: {} says so", kClassNames[static_cast<size_t>(what)],
                                   policy.tier, key));
    return;
  }
  // Fractions of the bytes: each item goes to the tier that is furthest below its share.
  int64_t total = 0;
  for (const Item& item : all) total += item.bytes;
  double have[kNumTiers] = {};
  for (const Item& item : all) {
    Tier best = Tier::device;
    double most = -1e300;
    for (const auto& [name, fraction] : policy.fractions) {
      const Tier tier = parse_tier(name);
      if (fraction <= 0) continue;
      require(tier);
      const double lack = fraction * static_cast<double>(total) - have[static_cast<size_t>(tier)];
      if (lack > most) {
        most = lack;
        best = tier;
      }
    }
    have[static_cast<size_t>(best)] += static_cast<double>(item.bytes);
    put(what, item, best);
  }
  reasons_.push_back(
      fmt::format("{} in shares: {} says so", kClassNames[static_cast<size_t>(what)], key));
}

void TierPolicy::apply_groups(const Config& config) {
  for (const auto& [pattern, name] : config.offload.groups) {
    const Tier tier = parse_tier(name);
    if (tier == Tier::nvme && budgets_.nvme < 0) {
      throw UsageError("offload.groups", fmt::format("\"{}\": got nvme without folders, expected "
                                                     "memory.nvme = [\"/folder\"]",
                                                     pattern));
    }
    bool found = false;
    for (const Class what : {Class::optimizer, Class::weights}) {
      std::vector<Item> rest;
      for (const Item& item : items(what)) {
        if (!matches_module(pattern, parameter_name(item.name))) {
          rest.push_back(item);
          continue;
        }
        found = true;
        put(what, item, tier);
      }
      items(what) = std::move(rest);
    }
    if (!found) {
      throw UsageError("offload.groups", fmt::format("got pattern \"{}\", which matches no "
                                                     "parameter, expected one such as "
                                                     "\"model.embed_tokens.*\"",
                                                     pattern));
    }
    reasons_.push_back(fmt::format("{} on {}: offload.groups says so", pattern, name));
  }
}

void TierPolicy::settle_update(const Config& config) {
  const bool away = std::any_of(choice_.homes.begin(), choice_.homes.end(),
                                [](const auto& home) { return home.second != Tier::device; });
  if (config.offload.update_on == "host") {
    choice_.update_on_host = true;
  } else if (config.offload.update_on == "auto") {
    // A gradient down and a weight up cross the link instead of three states both ways.
    choice_.update_on_host = away;
  }
  // Only traffic that is slow enough to be worth the gradients' longer life.
  const bool slow = std::any_of(choice_.homes.begin(), choice_.homes.end(),
                                [](const auto& home) { return home.second == Tier::nvme; });
  choice_.late_update = config.offload.late_update == "on" ||
                        (config.offload.late_update == "auto" && slow && choice_.update_on_host);
  choice_.ahead_bytes = 0;
  // A disk that has more to do in the passes than the states has no time to read ahead in.
  const bool idle_disk =
      choice_.gradients.empty() && choice_.activations.empty() &&
      std::none_of(choice_.homes.begin(), choice_.homes.end(), [](const auto& home) {
        return home.second == Tier::nvme && home.first.find('@') == std::string::npos;
      });
  if (choice_.late_update && choice_.update_on_host && idle_disk) {
    choice_.ahead_bytes =
        budgets_.host > 0 ? std::min(kAheadBytes, budgets_.host / 16) : kAheadBytes;
  }
  if (config.offload.prefetch) {
    // Three states and a gradient per piece, pieces_ahead + 1 pieces at a time.
    const int64_t pieces = 4 * (choice_.pieces_ahead + 1);
    const int64_t bytes = std::min(*config.offload.prefetch / pieces, int64_t{256} << 20);
    choice_.chunk_bytes = std::max<int64_t>(1, bytes / kChunkUnit) * kChunkUnit;
  } else if (budgets_.piece > 0) {
    choice_.chunk_bytes = budgets_.piece;
  }
}

bool TierPolicy::room(Tier tier, int64_t bytes) const {
  const int64_t budget = tier == Tier::host ? budgets_.host : budgets_.nvme;
  if (budget < 0) return false;
  const int64_t reserve = tier == Tier::host ? budgets_.host_reserve : 0;
  return budget == 0 || used_[static_cast<size_t>(tier)] + bytes + reserve <= budget;
}

bool TierPolicy::move_class(Class what, int64_t missing, int64_t least) {
  std::vector<Item>& list = items(what);
  int64_t moved[kNumTiers] = {};
  // Largest first; the last one is the smallest that covers the rest.
  for (size_t begin = 0; begin < list.size() && list[begin].bytes >= least;) {
    const int64_t rest = missing - moved[1] - moved[2];
    if (rest <= 0) break;
    size_t next = begin;
    while (next + 1 < list.size() && list[next + 1].bytes >= std::max(rest, least)) ++next;
    while (next > begin && list[next - 1].bytes == list[next].bytes) --next;
    const Item item = list[next];
    const Tier tier = room(Tier::host, item.bytes)   ? Tier::host
                      : room(Tier::nvme, item.bytes) ? Tier::nvme
                                                     : Tier::device;
    if (tier == Tier::device) {
      // No larger one has room either.
      begin = next + 1;
      continue;
    }
    put(what, item, tier);
    moved[static_cast<size_t>(tier)] += item.bytes;
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(next));
  }
  if (moved[1] + moved[2] == 0) return false;
  for (const Tier tier : {Tier::host, Tier::nvme}) {
    const int64_t bytes = moved[static_cast<size_t>(tier)];
    if (bytes == 0) continue;
    reasons_.push_back(fmt::format("{} bytes of {} on {}: {} bytes of device memory were missing",
                                   bytes, kClassNames[static_cast<size_t>(what)], tier_name(tier),
                                   missing));
  }
  return true;
}

bool TierPolicy::move_more(const Plan& plan) {
  const TierUse& device = plan.tiers[static_cast<size_t>(Tier::device)];
  if (device.budget <= 0 || device.peak_bytes <= device.budget) return false;
  const int64_t missing = device.peak_bytes - device.budget;
  // What moves least per byte saved goes first: states once a step, gradients and activations once
  // per micro-batch, weights twice per micro-batch.
  for (const int64_t least : {kSmallBytes, int64_t{0}}) {
    for (const Class what :
         {Class::optimizer, Class::gradients, Class::activations, Class::weights}) {
      if (!move_class(what, missing, least)) continue;
      settle_update(config_);
      return true;
    }
  }
  return false;
}

}  // namespace weft
