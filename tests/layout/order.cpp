#include "tests/layout/order.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/ops/collective.h"

namespace weft::test {
namespace {

bool same_view(const CollectiveView& a, const CollectiveView& b) {
  return a.outer == b.outer && a.extent == b.extent && a.inner == b.inner && a.pieces == b.pieces;
}

/// Do two members agree on everything but their place?
bool same_call(const CollectiveSpec& a, const CollectiveSpec& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.reduction != b.reduction || a.axis != b.axis ||
      a.ways != b.ways || a.tensors.size() != b.tensors.size()) {
    return false;
  }
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (!same_view(a.tensors[i].view, b.tensors[i].view)) return false;
    if (a.tensors[i].gathered != b.tensors[i].gathered) return false;
  }
  return true;
}

/// The collectives of a plan in order; `axis` "" = all of them.
std::vector<const PlanStep*> collectives_of(const Plan& plan, const std::string& axis) {
  std::vector<const PlanStep*> steps;
  for (const PlanProgram& program : plan.programs) {
    for (const PlanStep& step : program.steps) {
      if (!op_def(step.op).collective) continue;
      if (axis.empty() || step.attrs.get_string("axis") == axis) steps.push_back(&step);
    }
  }
  return steps;
}

CollectiveSpec spec_of(const PlanStep& step) {
  return collective_spec({step.op, step.attrs, step.input_types, step.output_types});
}

std::string text_of(const PlanStep& step) {
  return fmt::format("{} over {} at {} {} micro-batch {}", op_def(step.op).name,
                     step.attrs.get_string("axis"), step.scope, phase_name(step.phase), step.micro);
}

/// Members of a group make the same calls in the same order.
void check_group(const std::vector<Plan>& plans, size_t rank, const std::string& axis,
                 std::vector<std::string>& faults) {
  const auto leader = static_cast<size_t>(plans[rank].groups.at(axis)[0]);
  const auto own = collectives_of(plans[rank], axis);
  const auto first = collectives_of(plans[leader], axis);
  for (size_t i = 0; i < std::max(own.size(), first.size()); ++i) {
    const bool both = i < own.size() && i < first.size();
    if (both && text_of(*own[i]) == text_of(*first[i]) &&
        same_call(spec_of(*own[i]), spec_of(*first[i]))) {
      continue;
    }
    faults.push_back(fmt::format("collective {} of rank {} is {}, of rank {} {}", i, rank,
                                 i < own.size() ? text_of(*own[i]) : "none", leader,
                                 i < first.size() ? text_of(*first[i]) : "none"));
    return;
  }
}

/// Runs the calls of all ranks, each as soon as all members have come to it: no group may wait for
/// another one that waits for it.
void check_progress(const std::vector<Plan>& plans, std::vector<std::string>& faults) {
  std::vector<std::vector<const PlanStep*>> calls;
  for (const Plan& plan : plans) calls.push_back(collectives_of(plan, ""));
  std::vector<size_t> done(plans.size(), 0);
  const auto axis_of = [&](size_t rank) {
    const bool more = done[rank] < calls[rank].size();
    return more ? calls[rank][done[rank]]->attrs.get_string("axis") : std::string();
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      const std::string axis = axis_of(rank);
      if (axis.empty()) continue;
      const std::vector<int32_t>& group = plans[rank].groups.at(axis);
      const bool all_here = std::all_of(group.begin(), group.end(), [&](int32_t member) {
        return axis_of(static_cast<size_t>(member)) == axis;
      });
      if (!all_here) continue;
      for (const int32_t member : group) ++done[static_cast<size_t>(member)];
      moved = true;
    }
  }
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (axis_of(rank).empty()) continue;
    faults.push_back(
        fmt::format("rank {} waits for ever in {}", rank, text_of(*calls[rank][done[rank]])));
  }
}

}  // namespace

std::vector<std::string> order_faults(const std::vector<Plan>& plans) {
  std::vector<std::string> faults;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (const auto& [axis, group] : plans[rank].groups) check_group(plans, rank, axis, faults);
  }
  check_progress(plans, faults);
  return faults;
}

}  // namespace weft::test
