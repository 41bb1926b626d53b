#include <algorithm>
#include <array>

#include "weft/plan/passes.h"
#include "weft/plan/timeline.h"

namespace weft {
namespace {

constexpr double kIoLatency = 1e-4;

DType compute_dtype(const PlanStep& step) {
  for (const TensorType& type : step.input_types) {
    if (is_floating(type.dtype)) return type.dtype;
  }
  return DType::f32;
}

}  // namespace

void count_traffic(Plan& plan) {
  plan.traffic.clear();
  for (const PlanProgram& program : plan.programs) {
    if (program.name != "train") continue;
    for (const PlanStep& step : program.steps) {
      if (!op_def(step.op).collective) continue;
      plan.traffic[step.attrs.get_string("axis")] += static_cast<int64_t>(step.cost.bytes);
    }
  }
}

double step_seconds(const PlanStep& step, const MachineSpec& machine) {
  if (op_def(step.op).collective) {
    return step.cost.bytes / machine.comm_bandwidth + machine.comm_latency;
  }
  switch (step.lane) {
    case Lane::h2d:
    case Lane::d2h: return step.cost.bytes / machine.copy_bandwidth + machine.step_overhead;
    case Lane::nvme_read: return step.cost.bytes / machine.nvme_read_bandwidth + kIoLatency;
    case Lane::nvme_write: return step.cost.bytes / machine.nvme_write_bandwidth + kIoLatency;
    default: break;
  }
  const double peak = machine.flops(compute_dtype(step));
  const double math = peak > 0 ? step.cost.flops / peak : 0.0;
  const double memory =
      machine.memory_bandwidth > 0 ? step.cost.bytes / machine.memory_bandwidth : 0.0;
  return std::max(math, memory) + machine.step_overhead;
}

std::vector<StepSpan> predict_timeline(const PlanProgram& program, const MachineSpec& machine) {
  std::array<double, kNumLanes> lane_free{};
  std::vector<StepSpan> spans(program.steps.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    const PlanStep& step = program.steps[i];
    double& free = lane_free[static_cast<size_t>(step.lane)];
    double begin = free;
    for (const int32_t wait : step.waits) {
      begin = std::max(begin, spans[static_cast<size_t>(wait)].end);
    }
    free = begin + step_seconds(step, machine);
    spans[i] = {begin, free};
  }
  return spans;
}

void predict_time(const PlanOptions& options, Plan& plan) {
  for (PlanProgram& program : plan.programs) {
    program.flops = 0;
    for (const PlanStep& step : program.steps) {
      if (op_def(step.op).matmul_like && !step.recomputed) program.flops += step.cost.flops;
    }
  }
  if (plan.programs.empty()) return;
  const auto train = std::find_if(plan.programs.begin(), plan.programs.end(),
                                  [](const PlanProgram& p) { return p.name == "train"; });
  const PlanProgram& program = train == plan.programs.end() ? plan.programs.front() : *train;

  double total = 0;
  double busy = 0;
  double update = 0;
  double recompute = 0;
  std::array<double, 9> matmul_flops{};  // by dtype: MFU is relative to the one used most
  const std::vector<StepSpan> spans = predict_timeline(program, options.machine);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PlanStep& step = program.steps[i];
    total = std::max(total, spans[i].end);
    if (step.lane != Lane::compute) continue;
    const double seconds = step_seconds(step, options.machine);
    busy += seconds;
    if (step.recomputed) recompute += seconds;
    if (step.phase == Phase::update || step.phase == Phase::verdict) update += seconds;
    if (op_def(step.op).matmul_like) {
      matmul_flops[static_cast<size_t>(compute_dtype(step))] += step.cost.flops;
    }
  }
  plan.time = {};
  plan.time.step_ms = total * 1e3;
  plan.time.compute_ms = busy * 1e3;
  plan.time.comm_exposed_ms = (total - busy) * 1e3;
  plan.time.update_ms = update * 1e3;
  plan.time.recompute_ms = recompute * 1e3;
  const auto most = std::max_element(matmul_flops.begin(), matmul_flops.end());
  const double peak = options.machine.flops(static_cast<DType>(most - matmul_flops.begin()));
  const bool from_model = options.tokens_per_step > 0 && options.model.flops_per_token > 0;
  const double work =
      from_model ? static_cast<double>(options.tokens_per_step) * options.model.flops_per_token
                 : program.flops;
  if (total > 0 && peak > 0) plan.time.mfu = work / (total * peak);
}

}  // namespace weft
