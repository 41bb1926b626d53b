#include <fmt/core.h>

#include <algorithm>

#include "weft/plan/passes.h"

namespace weft {
namespace {

constexpr MemoryClass kTableClasses[] = {MemoryClass::weights,   MemoryClass::gradients,
                                         MemoryClass::optimizer, MemoryClass::activations,
                                         MemoryClass::workspace, MemoryClass::prefetch,
                                         MemoryClass::inputs};

Json tier_json(const TierUse& use) {
  Json json = Json::object();
  json.set("budget", use.budget);
  json.set("peak_bytes", use.peak_bytes);
  int64_t sum = 0;
  for (MemoryClass c : kTableClasses) {
    const int64_t bytes = use.by_class[static_cast<size_t>(c)];
    json.set(memory_class_name(c), bytes);
    sum += bytes;
  }
  json.set("padding", use.peak_bytes - sum);
  return json;
}

Json shape_json(const Shape& shape) {
  Json json = Json::array();
  for (int64_t extent : shape) json.push(extent);
  return json;
}

Json type_json(const TensorType& type) {
  if (!type.present()) return nullptr;
  return Json(std::string(dtype_name(type.dtype)) + shape_text(type.shape));
}

Json types_json(const std::vector<TensorType>& types) {
  Json json = Json::array();
  for (const TensorType& type : types) json.push(type_json(type));
  return json;
}

Json ints_json(const std::vector<int32_t>& values) {
  Json json = Json::array();
  for (int32_t value : values) json.push(value);
  return json;
}

Json named_json(const std::map<std::string, int32_t>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json.set(name, value);
  return json;
}

Json attrs_json(const Attrs& attrs) {
  Json json = Json::object();
  for (const auto& [name, value] : attrs.entries()) {
    std::visit([&](const auto& v) { json.set(name, Json(v)); }, value);
  }
  return json;
}

Json init_json(const StateInit& init) {
  switch (init.kind) {
    case StateInit::Kind::zeros: return "zeros";
    case StateInit::Kind::ones: return "ones";
    case StateInit::Kind::normal: return Json::object({{"normal", init.stddev}});
    case StateInit::Kind::copy: return Json::object({{"copy", init.source}});
  }
  return nullptr;
}

Json logical_json(const LogicalSlice& logical) {
  Json json = Json::object({{"name", logical.name},
                            {"shape", shape_json(logical.shape)},
                            {"begin", shape_json(logical.begin)}});
  if (logical.flat_begin < 0) return json;
  json.set("extent", shape_json(logical.extent));
  json.set("flat_begin", logical.flat_begin);
  return json;
}

Json state_json(const PlanState& state) {
  return Json::object({{"name", state.name},
                       {"role", state_role_name(state.role)},
                       {"type", type_json(state.type)},
                       {"buffer", state.buffer},
                       {"init", init_json(state.init)},
                       {"logical", logical_json(state.logical)},
                       {"slot", state.slot},
                       {"decay", state.decay}});
}

Json buffer_json(const PlanBuffer& b) {
  return Json::object({{"name", b.name},
                       {"class", memory_class_name(b.memory_class)},
                       {"tier", tier_name(b.tier)},
                       {"offset", b.offset},
                       {"bytes", b.bytes},
                       {"type", type_json(b.type)},
                       {"program", b.program},
                       {"first_step", b.first_step},
                       {"last_step", b.last_step}});
}

Json step_json(const PlanStep& step) {
  Json json = Json::object({{"lane", lane_name(step.lane)},
                            {"op", op_def(step.op).name},
                            {"attrs", attrs_json(step.attrs)},
                            {"inputs", ints_json(step.inputs)},
                            {"outputs", ints_json(step.outputs)},
                            {"input_types", types_json(step.input_types)},
                            {"output_types", types_json(step.output_types)},
                            {"workspace", step.workspace},
                            {"waits", ints_json(step.waits)},
                            {"scope", step.scope},
                            {"phase", phase_name(step.phase)},
                            {"micro", step.micro},
                            {"flops", step.cost.flops},
                            {"bytes", step.cost.bytes}});
  if (step.recomputed) json.set("recomputed", true);
  return json;
}

Json program_json(const Plan& plan, const PlanProgram& program) {
  Json steps = Json::array();
  for (const PlanStep& step : program.steps) steps.push(step_json(step));
  Json results = Json::object();
  for (const auto& [state, step] : program.state_results) {
    results.set(plan.states[static_cast<size_t>(state)].name, step);
  }
  return Json::object({{"name", program.name},
                       {"inputs", named_json(program.inputs)},
                       {"outputs", named_json(program.outputs)},
                       {"state_results", std::move(results)},
                       {"live_peak_bytes", program.live_peak_bytes},
                       {"flops", program.flops},
                       {"steps", std::move(steps)}});
}

Json time_json(const PlanTime& time) {
  Json json = Json::object({{"step_ms", time.step_ms},
                            {"compute_ms", time.compute_ms},
                            {"comm_exposed_ms", time.comm_exposed_ms},
                            {"copy_exposed_ms", time.copy_exposed_ms},
                            {"io_exposed_ms", time.io_exposed_ms},
                            {"update_ms", time.update_ms},
                            {"mfu", time.mfu}});
  if (time.recompute_ms > 0) json.set("recompute_ms", time.recompute_ms);
  return json;
}

}  // namespace

namespace {

Json coords_json(const std::map<std::string, int64_t>& coords) {
  Json json = Json::object();
  for (const char* axis : {"data", "op", "pipeline", "expert"}) {
    const auto found = coords.find(axis);
    json.set(axis, found == coords.end() ? int64_t{0} : found->second);
  }
  return json;
}

Json rank_json(int64_t rank, const std::map<std::string, int64_t>& coords, const Plan& plan) {
  Json json = Json::object({{"rank", rank}, {"coords", coords_json(coords)}});
  for (int i = 0; i < kNumTiers; ++i) {
    json.set(tier_name(static_cast<Tier>(i)), tier_json(plan.tiers[static_cast<size_t>(i)]));
  }
  return json;
}

Json nodes_json(const ClusterPlan& cluster) {
  const auto world = static_cast<int64_t>(cluster.ranks.size());
  const int64_t per_node = cluster.ranks_per_node > 0 ? cluster.ranks_per_node : world;
  Json nodes = Json::array();
  for (int64_t first = 0; first < world; first += per_node) {
    Json ranks = Json::array();
    const int64_t end = std::min(world, first + per_node);
    for (int64_t rank = first; rank < end; ++rank) ranks.push(rank);
    // Host and NVMe budgets are those of a node; its ranks share them.
    const auto shared = [&](Tier tier) {
      int64_t budget = 0;
      int64_t bytes = 0;
      for (int64_t rank = first; rank < end; ++rank) {
        const TierUse& use = cluster.plan_of(rank).tiers[static_cast<size_t>(tier)];
        budget = std::max(budget, use.budget);
        bytes += use.peak_bytes;
      }
      return Json::object({{"budget", budget}, {"peak_bytes", bytes}});
    };
    nodes.push(Json::object({{"node", first / per_node},
                             {"ranks", std::move(ranks)},
                             {"host", shared(Tier::host)},
                             {"nvme", shared(Tier::nvme)}}));
  }
  return nodes;
}

/// Bytes of the rank that receives or moves most.
Json traffic_json(const ClusterPlan& cluster) {
  Json traffic = Json::object();
  for (const char* axis : {"data", "op", "pipeline", "expert"}) {
    int64_t bytes = 0;
    for (const Plan& plan : cluster.plans) {
      const auto found = plan.traffic.find(axis);
      if (found != plan.traffic.end()) bytes = std::max(bytes, found->second);
    }
    traffic.set(axis, Json::object({{"bytes_per_step", bytes}}));
  }
  for (const Lane lane : {Lane::h2d, Lane::d2h, Lane::nvme_read, Lane::nvme_write}) {
    int64_t bytes = 0;
    for (const Plan& plan : cluster.plans) {
      for (const PlanProgram& program : plan.programs) {
        if (program.name == "train") bytes = std::max(bytes, lane_bytes(program, lane));
      }
    }
    traffic.set(std::string(lane_name(lane)), Json::object({{"bytes_per_step", bytes}}));
  }
  return traffic;
}

}  // namespace

const Plan& ClusterPlan::plan_of(int64_t rank) const {
  return plans[static_cast<size_t>(ranks[static_cast<size_t>(rank)].plan)];
}

bool ClusterPlan::fits() const {
  return std::all_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.fits; });
}

Json plan_summary_json(const ClusterPlan& cluster) {
  const Plan& first = cluster.plans.front();
  // The slowest rank is the job's time.
  const Plan& slowest = *std::max_element(
      cluster.plans.begin(), cluster.plans.end(),
      [](const Plan& a, const Plan& b) { return a.time.step_ms < b.time.step_ms; });
  Json ranks = Json::array();
  for (size_t rank = 0; rank < cluster.ranks.size(); ++rank) {
    const ClusterPlan::Rank& entry = cluster.ranks[rank];
    ranks.push(rank_json(static_cast<int64_t>(rank), entry.coords,
                         cluster.plans[static_cast<size_t>(entry.plan)]));
  }
  Json advice = Json::array();
  for (const std::string& line : first.advice) advice.push(line);
  return Json::object({{"fits", cluster.fits()},
                       {"world", static_cast<int64_t>(cluster.ranks.size())},
                       {"model", Json::object({{"parameters", first.model.parameters},
                                               {"active_parameters", first.model.active_parameters},
                                               {"flops_per_token", first.model.flops_per_token}})},
                       {"ranks", std::move(ranks)},
                       {"nodes", nodes_json(cluster)},
                       {"traffic", traffic_json(cluster)},
                       {"time", time_json(slowest.time)},
                       {"advice", std::move(advice)}});
}

Json plan_summary_json(const Plan& plan) {
  ClusterPlan cluster;
  cluster.plans = {plan};
  cluster.ranks = {{0, plan.coords}};
  Json json = plan_summary_json(cluster);
  json.set("world", plan.world);
  Json ranks = Json::array();
  ranks.push(rank_json(plan.rank, plan.coords, plan));
  json.set("ranks", std::move(ranks));
  return json;
}

Json plan_json(const Plan& plan) {
  Json states = Json::array();
  for (const PlanState& state : plan.states) states.push(state_json(state));
  Json buffers = Json::array();
  for (const PlanBuffer& buffer : plan.buffers) buffers.push(buffer_json(buffer));
  Json programs = Json::array();
  for (const PlanProgram& program : plan.programs) programs.push(program_json(plan, program));
  Json json = Json::object({{"version", Plan::kVersion}, {"backend", plan.backend}});
  json.set("summary", plan_summary_json(plan));
  if (plan.world > 1) {
    Json groups = Json::object();
    for (const auto& [axis, ranks] : plan.groups) groups.set(axis, ints_json(ranks));
    json.set("groups", std::move(groups));
  }
  json.set("states", std::move(states));
  json.set("buffers", std::move(buffers));
  json.set("programs", std::move(programs));
  return json;
}

}  // namespace weft
