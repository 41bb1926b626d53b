#include "weft/plan/build.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "weft/base/check.h"
#include "weft/ops/collective.h"
#include "weft/plan/kernel_key.h"
#include "weft/plan/passes.h"

namespace weft {
namespace {

/// Asks the backend once per distinct kernel.
class SupportCache {
 public:
  SupportCache(const KernelSupport& support, std::string_view backend)
      : support_(support), backend_(backend) {}

  int64_t workspace_bytes(const KernelSpec& spec, const std::string& scope) {
    const auto found = known_.find(spec);
    if (found != known_.end()) return found->second;
    if (!support_.supports(spec)) refuse(spec, scope);
    const int64_t bytes = support_.workspace_bytes(spec);
    WEFT_CHECK(bytes >= 0, "plan", "backend {} asks for {} bytes of workspace", backend_, bytes);
    known_.emplace(spec, bytes);
    return bytes;
  }

 private:
  [[noreturn]] void refuse(const KernelSpec& spec, const std::string& scope) const {
    std::string types;
    for (const TensorType& type : spec.inputs) {
      if (!types.empty()) types += ", ";
      types += type.present() ? fmt::format("{}{}", dtype_name(type.dtype), shape_text(type.shape))
                              : "none";
    }
    throw UsageError(
        "plan",
        fmt::format("got operator {} ({}) for {}, expected one that backend {} can "
                    "run; try another precision.compute or device.backend",
                    op_def(spec.op).name, types, scope.empty() ? "the step" : scope, backend_));
  }

  const KernelSupport& support_;
  std::string_view backend_;
  std::unordered_map<KernelSpec, int64_t, KernelSpecHash, KernelSpecEqual> known_;
};

using TierBytes = std::array<int64_t, kNumTiers>;

int64_t& of(TierBytes& bytes, Tier tier) { return bytes[static_cast<size_t>(tier)]; }

/// Tiers whose buffers the cold tier reads and writes directly keep its alignment.
TierBytes alignments(std::span<const ProgramInput> programs) {
  TierBytes alignment;
  alignment.fill(kBufferAlignment);
  of(alignment, Tier::nvme) = kColdAlignment;
  for (const ProgramInput& program : programs) {
    for (const Node& node : program.graph->nodes()) {
      if (!op_def(node.op).transfer) continue;
      const Tier from = program.graph->value(node.inputs[0]).tier;
      const Tier to = program.graph->value(node.outputs[0]).tier;
      if (from == Tier::nvme) of(alignment, to) = kColdAlignment;
      if (to == Tier::nvme) of(alignment, from) = kColdAlignment;
    }
  }
  return alignment;
}

/// One buffer per distinct state of all programs, packed from offset 0 of its home tier. Returns
/// the bytes used per tier.
TierBytes place_states(std::span<const ProgramInput> programs, TierBytes alignment, Plan& plan,
                       std::map<std::string, int32_t>& state_buffers) {
  TierBytes offsets{};
  for (const ProgramInput& program : programs) {
    for (const State& state : program.graph->states()) {
      const auto found = state_buffers.find(state.name);
      if (found != state_buffers.end()) {
        const PlanState* known = plan.find_state(state.name);
        WEFT_CHECK(known != nullptr && known->type == state.type, "plan",
                   "state {} has one type in program {} and another in {}", state.name,
                   program.name, programs.front().name);
        continue;
      }
      int64_t& offset = of(offsets, state.home);
      const auto index = static_cast<int32_t>(plan.buffers.size());
      state_buffers.emplace(state.name, index);
      plan.buffers.push_back({.name = state.name,
                              .memory_class = program.graph->value(state.value).memory_class,
                              .tier = state.home,
                              .offset = offset,
                              .bytes = state.type.bytes(),
                              .type = state.type});
      plan.states.push_back({.name = state.name,
                             .role = state.role,
                             .type = state.type,
                             .buffer = index,
                             .init = state.init,
                             .logical = state.logical,
                             .slot = state.slot,
                             .decay = state.decay});
      offset = round_up(offset + state.type.bytes(), of(alignment, state.home));
    }
  }
  return offsets;
}

/// The lane that runs a node, from where its operands lie.
Lane lane_of(const Graph& graph, const Node& node) {
  const OpDef& def = op_def(node.op);
  if (def.collective) return Lane::comm;
  const Lane computed = node.on_host ? Lane::host : Lane::compute;
  if (!def.transfer) return computed;
  const Tier from = graph.value(node.inputs[0]).tier;
  const Tier to = graph.value(node.outputs[0]).tier;
  if (from == Tier::nvme) return Lane::nvme_read;
  if (to == Tier::nvme) return Lane::nvme_write;
  if (from == to) return to == Tier::host ? Lane::host : Lane::compute;
  return to == Tier::device ? Lane::h2d : Lane::d2h;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const ProgramInput& input, int32_t index,
                 const std::map<std::string, int32_t>& state_buffers, SupportCache& support,
                 const MachineSpec& machine, Plan& plan)
      : graph_(*input.graph), index_(index), plan_(plan), support_(support) {
    program_.name = input.name;
    order_ = order_nodes(graph_);
    first_transient_ = plan.buffers.size();
    value_buffer_ = assign_buffers(graph_, order_, index, state_buffers, plan.buffers);
    for (NodeId id : order_) add_step(graph_.node(id));
    for (ValueId id : graph_.inputs()) program_.inputs.emplace(graph_.value(id).name, buffer(id));
    for (const auto& [name, id] : graph_.outputs()) program_.outputs.emplace(name, buffer(id));
    note_state_results();
    keep_for_transfers(program_, machine, index, std::span(plan.buffers).subspan(first_transient_));
  }

  /// Places the transient buffers of every tier above its states.
  void place(TierBytes base, TierBytes alignment, const PlanOptions& options) {
    const TierBytes budgets = {options.device_budget, options.host_budget, options.nvme_budget};
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      std::vector<ArenaItem> items;
      std::vector<ArenaItem> exact;
      std::vector<size_t> ids;
      for (size_t i = first_transient_; i < plan_.buffers.size(); ++i) {
        const PlanBuffer& buffer = plan_.buffers[i];
        if (buffer.tier != tier) continue;
        // Blocks of whole alignments are placed at whole alignments.
        exact.push_back({buffer.bytes, buffer.first_step, buffer.last_step, 0});
        items.push_back(exact.back());
        items.back().bytes = round_up(buffer.bytes, of(alignment, tier));
        ids.push_back(i);
      }
      if (items.empty()) continue;
      if (tier == Tier::device) program_.live_peak_bytes = live_peak(exact);
      const int64_t first = round_up(of(base, tier), of(alignment, tier));
      const int64_t budget = budgets[static_cast<size_t>(t)];
      const bool hopeless = options.draft && budget > 0 && first + live_peak(items) > budget;
      place_items(items, hopeless ? Effort::draft : Effort::full);
      for (size_t i = 0; i < items.size(); ++i) {
        plan_.buffers[ids[i]].offset = first + items[i].offset;
      }
    }
  }

  PlanProgram take() {
    add_waits(plan_.buffers, program_);
    return std::move(program_);
  }

 private:
  int32_t buffer(ValueId value) const {
    return graph_.type(value).present() ? value_buffer_[static_cast<size_t>(value)] : -1;
  }

  void add_step(const Node& node) {
    PlanStep step;
    step.op = node.op;
    step.attrs = node.attrs;
    step.input_types = graph_.input_types(node);
    step.output_types = graph_.output_types(node);
    for (ValueId id : node.inputs) step.inputs.push_back(id == kNoValue ? -1 : buffer(id));
    for (ValueId id : node.outputs) step.outputs.push_back(id == kNoValue ? -1 : buffer(id));
    step.scope = node.scope;
    step.phase = node.phase;
    step.micro = node.micro;
    step.recomputed = node.recomputed;
    const OpDef& def = op_def(node.op);
    const KernelSpec spec{step.op, step.attrs, step.input_types, step.output_types};
    int64_t workspace = 0;
    step.lane = lane_of(graph_, node);
    if (def.collective) {
      const CollectiveSpec collective = collective_spec(spec);
      step.cost.bytes = static_cast<double>(received_bytes(collective));
      workspace = collective_workspace_bytes(collective);
    } else {
      if (def.cost != nullptr) {
        step.cost = def.cost(step.input_types, step.output_types, step.attrs);
      }
      if (!def.transfer) workspace = support_.workspace_bytes(spec, step.scope);
    }
    if (workspace > 0) {
      step.workspace = def.collective
                           ? share_workspace(workspace)
                           : add_workspace(workspace, node.on_host ? Tier::host : Tier::device);
    }
    program_.steps.push_back(std::move(step));
  }

  int32_t add_workspace(int64_t bytes, Tier tier) {
    const auto step = static_cast<int32_t>(program_.steps.size());
    plan_.buffers.push_back({.name = fmt::format("workspace.{}", step),
                             .memory_class = MemoryClass::workspace,
                             .tier = tier,
                             .bytes = bytes,
                             .type = {DType::u8, {bytes}},
                             .program = index_,
                             .first_step = step,
                             .last_step = step});
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }

  /// Collectives run one after the other on their lane: one block serves all of them.
  int32_t share_workspace(int64_t bytes) {
    if (comm_workspace_ < 0) comm_workspace_ = add_workspace(0, Tier::device);
    PlanBuffer& buffer = plan_.buffers[static_cast<size_t>(comm_workspace_)];
    buffer.bytes = std::max(buffer.bytes, bytes);
    buffer.type.shape = {buffer.bytes};
    buffer.last_step = static_cast<int32_t>(program_.steps.size());
    return comm_workspace_;
  }

  void note_state_results() {
    std::unordered_map<NodeId, int32_t> step_of;
    for (size_t i = 0; i < order_.size(); ++i) step_of[order_[i]] = static_cast<int32_t>(i);
    std::unordered_map<std::string_view, int32_t> state_index;
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      state_index[plan_.states[i].name] = static_cast<int32_t>(i);
    }
    for (const State& state : graph_.states()) {
      if (state.result == kNoValue || state.result == state.value) continue;
      program_.state_results[state_index.at(state.name)] =
          step_of.at(graph_.value(state.result).producer);
    }
  }

  const Graph& graph_;
  int32_t index_;
  Plan& plan_;
  SupportCache& support_;
  PlanProgram program_;
  std::vector<NodeId> order_;
  size_t first_transient_ = 0;
  int32_t comm_workspace_ = -1;
  std::vector<int32_t> value_buffer_;
};

}  // namespace

Plan build_plan(std::span<const ProgramInput> programs, const KernelSupport& support,
                const PlanOptions& options) {
  Plan plan;
  plan.backend = options.backend;
  plan.rank = options.rank;
  plan.world = options.world;
  plan.coords = options.coords;
  plan.mesh = options.mesh;
  plan.groups = options.groups;
  plan.ranks_per_node = options.ranks_per_node;
  plan.model = options.model;

  std::map<std::string, int32_t> state_buffers;
  for (const ProgramInput& program : programs) {
    WEFT_CHECK(program.graph != nullptr, "plan", "program {} has no graph", program.name);
  }
  const TierBytes alignment = alignments(programs);
  const TierBytes state_bytes = place_states(programs, alignment, plan, state_buffers);
  SupportCache cache(support, options.backend);
  for (size_t i = 0; i < programs.size(); ++i) {
    ProgramBuilder builder(programs[i], static_cast<int32_t>(i), state_buffers, cache,
                           options.machine, plan);
    builder.place(state_bytes, alignment, options);
    plan.programs.push_back(builder.take());
  }
  count_traffic(plan);
  predict_time(options, plan);
  fill_tiers(options, plan);
  if (!options.draft || plan.fits) verify_plan(plan);
  return plan;
}

}  // namespace weft
