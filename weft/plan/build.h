// From step graphs to a verified Plan: order, liveness, static arena, lanes, predicted cost. Pure
// functions; no device is touched, `support` is only asked questions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/kernel.h"
#include "weft/plan/machine.h"
#include "weft/plan/plan.h"

namespace weft {

/// One program of the plan. `graph` is borrowed for the call.
struct ProgramInput {
  std::string name;  // "train", "eval", "logits"
  const Graph* graph = nullptr;
};

/// What the plan is made for. Budgets in bytes; 0 = no limit.
struct PlanOptions {
  std::string backend;
  int32_t rank = 0;
  int32_t world = 1;
  std::map<std::string, int64_t> coords;               // mesh axis -> coordinate
  std::map<std::string, int64_t> mesh;                 // axes of more than one rank -> size
  std::map<std::string, std::vector<int32_t>> groups;  // see Plan::groups
  int64_t ranks_per_node = 0;                          // 0 = all on one node
  int64_t device_budget = 0;
  int64_t host_budget = 0;
  int64_t nvme_budget = 0;
  /// One of many plans on the way to one that fits. Where what is live at once exceeds a budget,
  /// blocks are not placed as tightly as possible, and a draft that does not fit is not verified.
  bool draft = false;
  ModelSummary model;
  MachineSpec machine;
  int64_t tokens_per_step = 0;  // of this rank in program "train"; 0 = MFU from the plan's FLOPs

  // Current settings, only for advice; 0 or "" = leave that knob out of it.
  int64_t micro_batch = 0;
  int64_t seq_len = 0;
  std::string compute;  // "fp32", "bf16", …
};

/// Builds and verifies the plan of `programs` on one rank. States are shared by name: the same
/// name must have the same type everywhere; a state that only one program knows is laid out too.
/// A plan over budget is returned with fits = false and advice (see require_fits).
/// Throws UsageError when the backend lacks a kernel, BugError when a graph cannot be placed (a
/// state result that would overwrite a value still needed, a required alias that cannot hold).
Plan build_plan(std::span<const ProgramInput> programs, const KernelSupport& support,
                const PlanOptions& options);

/// Throws ResourceError with the shortfall, the memory table and the advice unless plan.fits.
void require_fits(const Plan& plan);

}  // namespace weft
