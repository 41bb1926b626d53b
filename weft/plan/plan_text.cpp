#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "weft/plan/passes.h"

namespace weft {
namespace {

constexpr size_t kTopBuffers = 15;

std::string human_flops(double flops) {
  if (flops >= 1e12) return fmt::format("{:.2f} TFLOP", flops / 1e12);
  if (flops >= 1e9) return fmt::format("{:.2f} GFLOP", flops / 1e9);
  return fmt::format("{:.2f} MFLOP", flops / 1e6);
}

/// 1234567 -> "1,234,567".
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<size_t>(i), 1, ',');
  }
  return digits;
}

std::string row(const std::string& label, int64_t bytes, int64_t whole) {
  const double percent =
      whole > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(whole) : 0.0;
  return fmt::format("  {:<28} {:>10} {:>7.1f} %  {:>18}\n", label, human_bytes(bytes), percent,
                     grouped(bytes));
}

std::string dtypes_text(const std::set<std::string_view>& dtypes) {
  std::string text;
  for (std::string_view dtype : dtypes) {
    text += text.empty() ? " (" : ", ";
    text += dtype;
  }
  return text.empty() ? text : text + ")";
}

/// Bytes and element types of the live buffers that `include` picks.
template <class Include>
std::pair<int64_t, std::set<std::string_view>> sum_live(const Plan& plan, Tier tier,
                                                        PeakMoment moment, Include include) {
  int64_t bytes = 0;
  std::set<std::string_view> dtypes;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    if (b.tier != tier || b.bytes == 0 || !live_at(b, moment) || !include(i)) continue;
    bytes += b.bytes;
    dtypes.insert(dtype_name(b.type.dtype));
  }
  return {bytes, dtypes};
}

std::string tier_table(const Plan& plan, Tier tier, PeakMoment moment) {
  const TierUse& use = plan.tiers[static_cast<size_t>(tier)];
  std::vector<StateRole> roles(plan.buffers.size(), StateRole::weight);
  for (const PlanState& state : plan.states) {
    roles[static_cast<size_t>(state.buffer)] = state.role;
  }
  std::string text = fmt::format("{} memory\n  {:<28} {:>10} {:>9}  {:>18}\n", tier_name(tier), "",
                                 "", "", "bytes");
  int64_t sum = 0;
  const auto add = [&](const std::string& label, auto include) {
    const auto [bytes, dtypes] = sum_live(plan, tier, moment, include);
    if (bytes == 0) return;
    text += row(label + dtypes_text(dtypes), bytes, use.peak_bytes);
    sum += bytes;
  };
  const auto of_class = [&](MemoryClass c) {
    return [&plan, c](size_t i) { return plan.buffers[i].memory_class == c; };
  };
  const auto of_role = [&](StateRole role) {
    return [&plan, &roles, role](size_t i) {
      return plan.buffers[i].memory_class == MemoryClass::optimizer && roles[i] == role;
    };
  };
  add("weights", of_class(MemoryClass::weights));
  add("gradients", of_class(MemoryClass::gradients));
  add("optimizer: master", of_role(StateRole::master));
  add("optimizer: moments", of_role(StateRole::moment));
  add("optimizer: other", of_role(StateRole::weight));
  add("activations", of_class(MemoryClass::activations));
  add("workspace", of_class(MemoryClass::workspace));
  add("prefetch", of_class(MemoryClass::prefetch));
  add("inputs", of_class(MemoryClass::inputs));
  if (tier == Tier::host && plan.snapshot_bytes > 0) {
    text += row("checkpoint snapshot", plan.snapshot_bytes, use.peak_bytes);
    sum += plan.snapshot_bytes;
  }
  if (use.peak_bytes > sum) {
    text += row("padding and gaps", use.peak_bytes - sum, use.peak_bytes);
  }
  text += row("total", use.peak_bytes, use.peak_bytes);
  if (use.budget > 0) {
    text += row("budget", use.budget, use.peak_bytes);
    text += row(use.budget >= use.peak_bytes ? "free" : "MISSING",
                std::abs(use.budget - use.peak_bytes), use.peak_bytes);
  }
  return text;
}

std::string step_name(const PlanProgram& program, int32_t step) {
  if (step < 0 || static_cast<size_t>(step) >= program.steps.size()) return "nothing";
  const PlanStep& s = program.steps[static_cast<size_t>(step)];
  return fmt::format("{} {}", op_def(s.op).name, s.scope);
}

std::string top_buffers(const Plan& plan, PeakMoment moment) {
  std::vector<const PlanBuffer*> live;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.tier == Tier::device && live_at(b, moment)) live.push_back(&b);
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const PlanBuffer* a, const PlanBuffer* b) { return a->bytes > b->bytes; });
  if (live.size() > kTopBuffers) live.resize(kTopBuffers);
  std::string text = "largest buffers at the peak";
  if (moment.program >= 0) {
    const PlanProgram& program = plan.programs[static_cast<size_t>(moment.program)];
    text += fmt::format(" (program {}, step {}: {})", program.name, moment.step,
                        step_name(program, moment.step));
  }
  text += "\n";
  for (const PlanBuffer* b : live) {
    text += fmt::format("  {:>10}  {:<12} {:<5} {:<18} {}\n", human_bytes(b->bytes),
                        memory_class_name(b->memory_class), dtype_name(b->type.dtype),
                        shape_text(b->type.shape), b->name);
  }
  return text;
}

std::string program_table(const Plan& plan) {
  std::string text =
      fmt::format("programs\n  {:<10} {:>8} {:>16} {:>14}\n", "name", "steps", "work", "live peak");
  for (const PlanProgram& program : plan.programs) {
    text += fmt::format("  {:<10} {:>8} {:>16} {:>14}\n", program.name, program.steps.size(),
                        human_flops(program.flops), human_bytes(program.live_peak_bytes));
  }
  return text;
}

}  // namespace

std::string human_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1e12) return fmt::format("{:.2f} TB", value / 1e12);
  if (value >= 1e9) return fmt::format("{:.2f} GB", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f} MB", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f} kB", value / 1e3);
  return fmt::format("{} B", bytes);
}

PeakMoment peak_moment(const Plan& plan, Tier tier) {
  PeakMoment moment;
  int64_t most = -1;
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    std::vector<ArenaItem> items;
    for (const PlanBuffer& b : plan.buffers) {
      if (b.program == static_cast<int32_t>(p) && b.tier == tier) {
        items.push_back({b.bytes, b.first_step, b.last_step, 0});
      }
    }
    int32_t step = 0;
    const int64_t peak = live_peak(items, &step);
    if (peak > most) {
      most = peak;
      moment = {static_cast<int32_t>(p), step};
    }
  }
  return moment;
}

bool live_at(const PlanBuffer& buffer, PeakMoment moment) {
  if (buffer.program < 0) return true;
  return buffer.program == moment.program && buffer.first_step <= moment.step &&
         moment.step <= buffer.last_step;
}

std::string memory_table(const Plan& plan) {
  std::string text;
  for (int i = 0; i < kNumTiers; ++i) {
    const auto tier = static_cast<Tier>(i);
    const TierUse& use = plan.tiers[static_cast<size_t>(i)];
    if (i == 0 || use.peak_bytes > 0) text += tier_table(plan, tier, peak_moment(plan, tier));
  }
  return text;
}

std::string ranks_table(const ClusterPlan& cluster) {
  std::string text = fmt::format("ranks\n  {:<10} {:>8} {:>14} {:>14} {:>14}\n", "like rank",
                                 "number", "device", "host", "predicted");
  for (size_t i = 0; i < cluster.plans.size(); ++i) {
    const Plan& plan = cluster.plans[i];
    const auto number =
        std::count_if(cluster.ranks.begin(), cluster.ranks.end(),
                      [&](const auto& rank) { return rank.plan == static_cast<int32_t>(i); });
    text += fmt::format("  {:<10} {:>8} {:>14} {:>14} {:>11.1f} ms{}\n", plan.rank, number,
                        human_bytes(plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes),
                        human_bytes(plan.tiers[static_cast<size_t>(Tier::host)].peak_bytes),
                        plan.time.step_ms, plan.fits ? "" : "  DOES NOT FIT");
  }
  return text;
}

std::vector<std::string> axes_across_nodes(const Plan& plan, int64_t ranks_per_node) {
  std::vector<std::string> axes;
  if (ranks_per_node <= 0) return axes;
  for (const auto& [axis, ranks] : plan.groups) {
    const auto elsewhere = [&](int32_t rank) {
      return rank / ranks_per_node != ranks.front() / ranks_per_node;
    };
    if (std::any_of(ranks.begin(), ranks.end(), elsewhere)) axes.push_back(axis);
  }
  return axes;
}

std::string traffic_table(const Plan& plan, int64_t ranks_per_node) {
  const std::vector<std::string> across = axes_across_nodes(plan, ranks_per_node);
  std::string text =
      fmt::format("axes\n  {:<10} {:>8} {:>26}\n", "name", "ranks", "received per rank and step");
  for (const auto& [axis, size] : plan.mesh) {
    const auto found = plan.traffic.find(axis);
    const int64_t bytes = found == plan.traffic.end() ? 0 : found->second;
    const bool crosses = std::find(across.begin(), across.end(), axis) != across.end();
    text += fmt::format("  {:<10} {:>8} {:>12} {:>18}{}\n", axis, size, human_bytes(bytes),
                        grouped(bytes), crosses ? "  crosses nodes" : "");
    if (crosses && axis == "op") {
      text += fmt::format(
          "  warning: axis op moves activations in every layer and crosses nodes of "
          "{} ranks; try parallel.op = {} and a larger parallel.data\n",
          ranks_per_node, ranks_per_node);
    }
  }
  return text;
}

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format("weft plan: backend {}, rank {} of {}, {}\n", plan.backend,
                                 plan.rank, plan.world, plan.fits ? "fits" : "DOES NOT FIT");
  text += fmt::format("model: {} parameters", grouped(plan.model.parameters));
  if (plan.model.active_parameters != plan.model.parameters) {
    text += fmt::format(" ({} active)", grouped(plan.model.active_parameters));
  }
  text += fmt::format(", {} per token\n\n", human_flops(plan.model.flops_per_token));
  text += memory_table(plan) + "\n";
  text += top_buffers(plan, peak_moment(plan)) + "\n";
  text += program_table(plan) + "\n";
  if (plan.world > 1) text += traffic_table(plan, plan.ranks_per_node) + "\n";
  text += fmt::format("predicted step: {:.1f} ms (update {:.1f} ms), MFU {:.1f} %\n",
                      plan.time.step_ms, plan.time.update_ms, 100.0 * plan.time.mfu);
  if (plan.time.recompute_ms > 0) {
    text += fmt::format("recomputed activations: {:.1f} ms, {:.1f} % of the step\n",
                        plan.time.recompute_ms, 100.0 * plan.time.recompute_ms / plan.time.step_ms);
  }
  if (plan.world > 1) {
    text +=
        fmt::format("communication that compute waits for: {:.1f} ms\n", plan.time.comm_exposed_ms);
  }
  for (const std::string& line : plan.notes) text += "note: " + line + "\n";
  for (const std::string& line : plan.advice) text += "advice: " + line + "\n";
  return text;
}

}  // namespace weft
