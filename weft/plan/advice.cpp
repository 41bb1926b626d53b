#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/plan/passes.h"

namespace weft {
namespace {

int64_t class_bytes(const TierUse& use, MemoryClass c) {
  return use.by_class[static_cast<size_t>(c)];
}

/// Bytes that grow with the tokens of a micro-batch, as far as the peak shows. Gaps in the arena
/// belong to them.
int64_t batch_bytes(const TierUse& use) {
  return use.peak_bytes - class_bytes(use, MemoryClass::weights) -
         class_bytes(use, MemoryClass::gradients) - class_bytes(use, MemoryClass::optimizer);
}

/// Largest value below `now` of a knob that scales the batch bytes and makes the plan fit; 0 =
/// none.
int64_t fitting_value(const TierUse& use, int64_t now) {
  const double per_unit = static_cast<double>(batch_bytes(use)) / static_cast<double>(now);
  const auto room = static_cast<double>(use.budget - (use.peak_bytes - batch_bytes(use)));
  if (room <= 0 || per_unit <= 0) return 0;
  return std::clamp<int64_t>(static_cast<int64_t>(room / per_unit), 0, now - 1);
}

void advise_device(const PlanOptions& options, const TierUse& use, Plan& plan) {
  const int64_t fixed = use.peak_bytes - batch_bytes(use);
  plan.advice.push_back(
      fmt::format("device memory: the plan needs {} ({} bytes), the budget is {}: {} missing",
                  human_bytes(use.peak_bytes), use.peak_bytes, human_bytes(use.budget),
                  human_bytes(use.peak_bytes - use.budget)));
  const auto scale_knob = [&](const char* key, int64_t now) {
    if (now <= 1) return;
    const int64_t value = fitting_value(use, now);
    if (value >= 1) {
      const auto after =
          fixed + static_cast<int64_t>(static_cast<double>(batch_bytes(use)) *
                                       static_cast<double>(value) / static_cast<double>(now));
      plan.advice.push_back(
          fmt::format("{} = {} (now {}) needs about {}", key, value, now, human_bytes(after)));
    } else {
      plan.advice.push_back(fmt::format("{} = 1 (now {}) frees about {}, not enough alone", key,
                                        now,
                                        human_bytes(batch_bytes(use) - batch_bytes(use) / now)));
    }
  };
  scale_knob("train.micro_batch", options.micro_batch);
  scale_knob("data.seq_len", options.seq_len);
  if (options.compute == "fp32") {
    plan.advice.push_back(fmt::format("precision.compute = \"bf16\" frees about {} of activations",
                                      human_bytes(class_bytes(use, MemoryClass::activations) / 2)));
  }
  if (fixed > use.budget) {
    plan.advice.push_back(fmt::format(
        "weights, gradients and optimizer states alone take {}: a smaller model is needed",
        human_bytes(fixed)));
  }
  plan.advice.push_back(fmt::format("memory.device = {} or more holds this plan", use.peak_bytes));
}

}  // namespace

void fill_tiers(const PlanOptions& options, Plan& plan) {
  plan.tiers = {};
  const int64_t budgets[] = {options.device_budget, options.host_budget, options.nvme_budget};
  for (int i = 0; i < kNumTiers; ++i) {
    const auto tier = static_cast<Tier>(i);
    TierUse& use = plan.tiers[static_cast<size_t>(i)];
    use.budget = budgets[i];
    const PeakMoment moment = peak_moment(plan, tier);
    for (const PlanBuffer& b : plan.buffers) {
      if (b.tier != tier) continue;
      use.peak_bytes = std::max(use.peak_bytes, round_up(b.offset + b.bytes, kBufferAlignment));
      if (live_at(b, moment)) use.by_class[static_cast<size_t>(b.memory_class)] += b.bytes;
    }
  }
  const auto over = [](const TierUse& use) {
    return use.budget > 0 && use.peak_bytes > use.budget;
  };
  plan.fits = std::none_of(plan.tiers.begin(), plan.tiers.end(), over);
  plan.advice.clear();
  const TierUse& device = plan.tiers[static_cast<size_t>(Tier::device)];
  if (over(device)) advise_device(options, device, plan);
  for (const Tier tier : {Tier::host, Tier::nvme}) {
    const TierUse& use = plan.tiers[static_cast<size_t>(tier)];
    if (!over(use)) continue;
    const char* key = tier == Tier::host ? "memory.host" : "memory.nvme_limit";
    // These keys are budgets of a node, which its ranks share.
    const int64_t ranks = options.ranks_per_node > 0 ? options.ranks_per_node : options.world;
    plan.advice.push_back(fmt::format(
        "{} memory: the plan needs {} ({} bytes), the budget is {}: {} missing; {} = {} or more "
        "holds this plan{}",
        tier_name(tier), human_bytes(use.peak_bytes), use.peak_bytes, human_bytes(use.budget),
        human_bytes(use.peak_bytes - use.budget), key, use.peak_bytes * ranks,
        ranks > 1 ? fmt::format(" on {} ranks of a node", ranks) : ""));
  }
}

void require_fits(const Plan& plan) {
  if (plan.fits) return;
  const TierUse& device = plan.tiers[static_cast<size_t>(Tier::device)];
  const bool device_short = device.budget > 0 && device.peak_bytes > device.budget;
  std::string text = "got a plan over its budget:";
  if (device_short) {
    text = fmt::format(
        "got a plan of {} bytes of device memory, expected at most {} (memory.device): {} bytes "
        "missing; try",
        device.peak_bytes, device.budget, device.peak_bytes - device.budget);
  }
  // The first line of advice about the device repeats the shortfall.
  for (size_t i = device_short ? 1 : 0; i < plan.advice.size(); ++i) {
    text += (i == (device_short ? 1U : 0U) ? " " : "; ") + plan.advice[i];
  }
  throw ResourceError("plan", text + "\n" + memory_table(plan));
}

}  // namespace weft
