// Read this page first: how a configuration becomes a Plan.
//
//   Config + ModelSpec
//     -> step graph       forward of every micro-batch, backward, verdict, update (step_graph.cpp)
//     -> shard            with more than one rank: a strategy per node, then the graph of this rank
//                         with its collectives (shard/, docs/sharding.md)
//     -> expand           fused operators the backend lacks become their unfused definition
//     -> fuse_add         sums fold into the kernels that make their operands
//     -> remove_dead      nodes nothing depends on
//     -> vertical         on demand: all micro-batches of a layer before the next layer
//     -> recompute        on demand: values of the forward pass are dropped and made again
//     -> early moves      collectives of activations start as soon as their operand is there
//     -> probes           what tells which rank an overflow came from
//     -> buckets          small collectives travel together
//     -> late update      where states are far away: the update runs at the begin of the next step
//     -> tiers            loads and stores of what does not live on the device (docs/tiers.md),
//                         again with more moved away until the plan fits
//     -> plan             order, liveness, arena, lanes, predicted time (plan/)
//
// The passes up to "buckets" are lowering.cpp, the choices around them this page. Every graph is
// verified after every pass, the plan after the last one.
#include "weft/compile/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "weft/base/check.h"
#include "weft/compile/late_update.h"
#include "weft/compile/lowering.h"
#include "weft/compile/offload.h"
#include "weft/compile/offload_update.h"
#include "weft/compile/step_graph.h"
#include "weft/compile/tier_policy.h"
#include "weft/plan/build.h"

namespace weft {
namespace {

/// How often the split between host and disk is made again.
constexpr int kHostTries = 6;

/// Bytes of a tensor of an update piece where the usual ones do not fit into host memory.
constexpr int64_t kLargestSmallPiece = int64_t{4} << 20;
constexpr int64_t kLeastPiece = int64_t{64} << 10;

std::vector<Program> build_programs(const Config& config, const ModelSpec& spec,
                                    const CompileOptions& options) {
  std::vector<Program> programs;
  const auto add = [&](std::string name, Graph graph) {
    programs.push_back({std::move(name), std::move(graph), {}, {}});
  };
  if (options.train) add("train", build_step_graph(config, spec, options.keep_gradients));
  if (options.eval) add("eval", build_eval_graph(config, spec));
  if (options.logits_seq_len > 0) {
    add("logits", build_logits_graph(config, spec, options.logits_seq_len, options.all_logits));
  }
  return programs;
}

void check_lengths(const Config& config, const ModelSpec& spec) {
  if (spec.family == Family::gpt2 && config.data.seq_len > spec.max_positions) {
    throw UsageError("data.seq_len",
                     fmt::format("got {}, expected at most max_position_embeddings = {} (learned "
                                 "positions); try a shorter seq_len",
                                 config.data.seq_len, spec.max_positions));
  }
}

void check_experts(const Config& config, const ModelSpec& spec) {
  const int64_t expert = config.parallel.expert;
  if (expert == 1) return;
  if (spec.family != Family::moe) {
    throw UsageError("parallel.expert", fmt::format("got {} for a model of type {} without "
                                                    "experts, expected 1",
                                                    expert, spec.model_type));
  }
  if (spec.moe.num_experts % expert != 0) {
    throw UsageError("parallel.expert",
                     fmt::format("got parallel.expert = {}, expected a divisor of the model's {} "
                                 "experts",
                                 expert, spec.moe.num_experts));
  }
}

PlanOptions plan_options(const Config& config, const ModelSpec& spec, const Mesh& mesh, int rank) {
  PlanOptions options;
  options.backend = config.device.backend;
  options.rank = rank;
  options.world = static_cast<int32_t>(mesh.world());
  options.coords = {{"data", 0}, {"op", 0}, {"pipeline", 0}, {"expert", 0}};
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    options.coords[mesh.name(axis)] = mesh.coord(rank, axis);
    if (mesh.size(axis) == 1) continue;
    options.mesh[mesh.name(axis)] = mesh.size(axis);
    options.groups[mesh.name(axis)] = mesh.group(rank, axis);
  }
  options.model.parameters = count_parameters(spec);
  options.model.active_parameters = count_active_parameters(spec);
  options.model.flops_per_token = flops_per_token(spec, config.data.seq_len);
  options.machine =
      default_cpu_machine(static_cast<int>(std::max<int64_t>(1, config.device.threads)));
  options.tokens_per_step = config.train.micro_batch * config.train.accumulation *
                            config.data.seq_len / config.parallel.op;
  options.micro_batch = config.train.micro_batch;
  options.seq_len = config.data.seq_len;
  options.compute = config.precision.compute;
  return options;
}

/// All of it for several ranks of one configuration.
class Compiler {
 public:
  Compiler(const Config& config, const ModelSpec& spec, const KernelSupport& support,
           const CompileOptions& options)
      : config_(config),
        spec_(spec),
        support_(support),
        options_(options),
        lowering_(config, spec, support, options) {
    check_lengths(config, spec);
    check_experts(config, spec);
    programs_ = build_programs(config, spec, options);
    for (Program& program : programs_) lowering_.shard(program);
    settle_recompute();
    settle_order();
  }

  const Mesh& mesh() const { return lowering_.mesh(); }

  Plan plan(int rank) {
    lower(rank);
    Plan plan = settle_tiers(rank);
    plan.notes.insert(plan.notes.end(), notes_.begin(), notes_.end());
    plan.advice.insert(plan.advice.end(), lowering_.advice().begin(), lowering_.advice().end());
    if (options_.dump) options_.dump("plan", plan_text(plan));
    return plan;
  }

  /// The plan of the lowered programs under the budgets. Where host memory is too small for the
  /// pieces that pass through it, smaller ones are tried before the plan is given up.
  Plan settle_tiers(int rank) {
    Plan plan = settle_host(rank, 0);
    const auto over_host = [&] {
      const TierUse& host = plan.tiers[static_cast<size_t>(Tier::host)];
      return host.budget > 0 && host.peak_bytes > host.budget;
    };
    if (config_.offload.prefetch) return plan;
    for (int64_t piece = kLargestSmallPiece; piece >= kLeastPiece && over_host(); piece /= 4) {
      Plan smaller = settle_host(rank, piece);
      const auto bytes = [](const Plan& p) {
        return p.tiers[static_cast<size_t>(Tier::host)].peak_bytes;
      };
      if (bytes(smaller) < bytes(plan)) plan = std::move(smaller);
    }
    return plan;
  }

  /// Per rank a key that is equal for ranks with the same shapes everywhere.
  std::vector<std::string> piece_keys() const {
    std::vector<std::string> keys(static_cast<size_t>(mesh().world()));
    if (mesh().world() == 1) return keys;
    for (const Program& program : programs_) {
      const PieceTable table(program.logical, program.sharding, mesh());
      for (size_t rank = 0; rank < keys.size(); ++rank) {
        keys[rank] += table.key(static_cast<int64_t>(rank));
      }
    }
    return keys;
  }

 private:
  void lower(int rank) {
    for (Program& program : programs_) {
      lowering_.lower(program, rank, program.name == "train" ? recompute_ : RecomputeChoice());
    }
  }

  PlanOptions options_for(int rank, const TierBudgets& budgets) const {
    PlanOptions options = plan_options(config_, spec_, lowering_.mesh(), rank);
    options.ranks_per_node = options_.ranks_per_node;
    options.device_budget = budgets.device;
    options.host_budget = budgets.host;
    options.nvme_budget = std::max<int64_t>(0, budgets.nvme);
    return options;
  }

  RecomputeChoice choice_of(std::string_view policy) const {
    if (policy == "full") return {.every = config_.recompute.every, .scopes = {}};
    if (policy == "none" || !options_.train) return {};
    return lowering_.choose(programs_.front(), options_for(0, {}).machine);
  }

  /// "auto" is the least recompute that fits with nothing moved away that need not be. Rank 0,
  /// which has the largest pieces, decides for all ranks: their collectives must agree.
  void settle_recompute() {
    const std::string& policy = config_.recompute.policy;
    if (policy != "auto") {
      recompute_ = choice_of(policy);
      return;
    }
    if (!config_.memory.device.has_value()) return;
    const TierBudgets budgets = tier_budgets(config_, local_ranks());
    for (const std::string_view attempt : {"none", "selective", "full"}) {
      recompute_ = choice_of(attempt);
      lower(0);
      const TierPolicy pinned(config_, programs_.front().graph, budgets);
      if (build(pinned.choice(), options_for(0, budgets)).fits) return;
    }
  }

  /// "auto" goes layer by layer when weights live elsewhere and that is predicted to be faster:
  /// each weight then moves once per pass instead of once per micro-batch. Rank 0 decides for all.
  void settle_order() {
    if (config_.train.microbatch_order != "auto" || !options_.train) return;
    if (config_.train.accumulation < 2 || !may_move_weights()) return;
    lower(0);
    const Plan horizontal = settle_tiers(0);
    const bool away = std::any_of(
        horizontal.states.begin(), horizontal.states.end(), [&](const PlanState& state) {
          const Tier tier = horizontal.buffers[static_cast<size_t>(state.buffer)].tier;
          return state.role == StateRole::weight && tier != Tier::device;
        });
    if (away) {
      lowering_.set_vertical(true);
      lower(0);
      const Plan vertical = settle_tiers(0);
      const bool better =
          vertical.fits && (!horizontal.fits || vertical.time.step_ms < horizontal.time.step_ms);
      lowering_.set_vertical(better);
      notes_.push_back(fmt::format(
          "micro-batches in {} order: weights live off the device; predicted {:.0f} ms "
          "horizontally, {:.0f} ms vertically",
          better ? "vertical" : "horizontal", horizontal.time.step_ms, vertical.time.step_ms));
    }
  }

  bool may_move_weights() const {
    const OffloadPolicy& weights = config_.offload.weights;
    return config_.memory.device.has_value() || weights.tier != "auto" ||
           !weights.fractions.empty() || !config_.offload.groups.empty();
  }

  Plan settle_host(int rank, int64_t piece) {
    TierBudgets budgets = tier_budgets(config_, local_ranks());
    budgets.piece = piece;
    const PlanOptions for_plan = options_for(rank, budgets);
    Plan plan = settle(budgets, for_plan);
    // What passes through host memory is known only with the plan; then less may live there.
    for (int i = 0; i < kHostTries && !plan.fits && budgets.host > 0; ++i) {
      const TierUse& host = plan.tiers[static_cast<size_t>(Tier::host)];
      if (host.peak_bytes <= budgets.host) break;
      budgets.host_reserve += (host.peak_bytes - budgets.host) * 17 / 16;
      plan = settle(budgets, for_plan);
    }
    return plan;
  }

  /// Moves states, gradients and activations off the device until the plan fits or nothing is left.
  Plan settle(const TierBudgets& budgets, const PlanOptions& for_plan) {
    TierPolicy policy(config_, programs_.front().graph, budgets);
    PlanOptions options = for_plan;
    const auto attempt = [&](bool draft) {
      TierChoice choice = policy.choice();
      choice.vertical = lowering_.vertical();
      options.draft = draft;
      return build(choice, options);
    };
    Plan plan = attempt(true);
    while (policy.move_more(plan)) plan = attempt(true);
    // What is short of a plan that is given up is said to the byte.
    if (!plan.fits) plan = attempt(false);
    plan.notes = policy.reasons();
    return plan;
  }

  /// The plan of all programs with the tiers of `choice`.
  Plan build(const TierChoice& choice, const PlanOptions& for_plan) {
    std::vector<ProgramInput> inputs;
    std::vector<Graph> graphs;
    graphs.reserve(programs_.size() + 2);
    const auto add = [&](const std::string& name, Graph graph) {
      graphs.push_back(std::move(graph));
      offload(graphs.back(), choice);
      if (!choice.empty()) lowering_.check(name, "tiers", graphs.back());
      inputs.push_back({name, &graphs.back()});
    };
    for (const Program& program : programs_) {
      Graph graph = program.graph;
      if (!choice.late_update || program.name != "train") {
        add(program.name, std::move(graph));
        continue;
      }
      Graph flush = delay_updates(graph);
      add(program.name, std::move(graph));
      std::optional<Graph> prime = prime_ahead(graphs.back());
      add("flush", std::move(flush));
      if (!prime) continue;
      graphs.push_back(std::move(*prime));
      lowering_.check("prime", "tiers", graphs.back());
      inputs.push_back({"prime", &graphs.back()});
    }
    return build_plan(inputs, support_, for_plan);
  }

  int64_t local_ranks() const {
    return options_.ranks_per_node > 0 ? options_.ranks_per_node : mesh().world();
  }

  const Config& config_;
  const ModelSpec& spec_;
  const KernelSupport& support_;
  const CompileOptions& options_;
  Lowering lowering_;
  std::vector<Program> programs_;
  RecomputeChoice recompute_;
  std::vector<std::string> notes_;
};

}  // namespace

Plan compile(const Config& config, const ModelSpec& spec, const KernelSupport& support,
             const CompileOptions& options) {
  Compiler compiler(config, spec, support, options);
  WEFT_CHECK(options.rank >= 0 && options.rank < compiler.mesh().world(), "compile",
             "got rank {} of {}", options.rank, compiler.mesh().world());
  return compiler.plan(options.rank);
}

ClusterPlan compile_ranks(const Config& config, const ModelSpec& spec, const KernelSupport& support,
                          const CompileOptions& options) {
  Compiler compiler(config, spec, support, options);
  ClusterPlan cluster;
  cluster.ranks_per_node = options.ranks_per_node;
  std::map<std::string, int32_t> known;
  const Mesh& mesh = compiler.mesh();
  const std::vector<std::string> keys = compiler.piece_keys();
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const auto [at, fresh] = known.try_emplace(keys[static_cast<size_t>(rank)],
                                               static_cast<int32_t>(cluster.plans.size()));
    if (fresh) cluster.plans.push_back(compiler.plan(rank));
    ClusterPlan::Rank entry{at->second, {{"data", 0}, {"op", 0}, {"pipeline", 0}, {"expert", 0}}};
    for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
      entry.coords[mesh.name(axis)] = mesh.coord(rank, axis);
    }
    cluster.ranks.push_back(std::move(entry));
  }
  return cluster;
}

}  // namespace weft
