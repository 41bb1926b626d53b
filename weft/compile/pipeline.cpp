// Read this page first: how a configuration becomes a Plan.
//
//   Config + ModelSpec
//     -> step graph       forward of every micro-batch, backward, verdict, update (step_graph.cpp)
//     -> shard            with more than one rank: a strategy per node, then the graph of this rank
//                         with its collectives (shard/, docs/sharding.md)
//     -> expand           fused operators the backend lacks become their unfused definition
//     -> fuse_add         sums fold into the kernels that make their operands
//     -> remove_dead      nodes nothing depends on
//     -> buckets          small collectives travel together
//     -> plan             order, liveness, arena, lanes, predicted time (plan/)
//
// Every graph is verified after every pass, the plan after the last one.
#include "weft/compile/pipeline.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/compile/default_shards.h"
#include "weft/compile/passes.h"
#include "weft/compile/step_graph.h"
#include "weft/plan/build.h"
#include "weft/shard/localize.h"

namespace weft {
namespace {

struct Program {
  std::string name;
  Graph graph;
};

/// Bytes of a call that several gradients share: large enough to fill a link, small enough to
/// start while most of the backward pass is still to come.
constexpr int64_t kBucketBytes = int64_t{32} << 20;

/// About the matrices of half a layer.
constexpr int32_t kGathersAhead = 4;

class Pipeline {
 public:
  Pipeline(const Config& config, const ModelSpec& spec, const KernelSupport& support,
           const CompileOptions& options)
      : support_(support), options_(options), mesh_(make_mesh(config.parallel)) {
    shard_.sequence = config.parallel.sequence;
    shard_.zero = static_cast<int>(config.parallel.zero);
    if (mesh_.world() > 1) shard_.entries = shard_entries(config, spec, mesh_);
  }

  const Mesh& mesh() const { return mesh_; }

  /// Runs the passes in order over one program.
  void lower(Program& program) const {
    check(program, "model");
    if (mesh_.world() > 1) shard(program);
    expand_unsupported(program.graph, support_);
    check(program, "expand");
    fuse_add(program.graph);
    check(program, "fuse");
    remove_dead_nodes(program.graph);
    bucket_collectives(program.graph, kBucketBytes);
    prefetch_weights(program.graph, kGathersAhead);
    check(program, "step");
  }

 private:
  void shard(Program& program) const {
    Router router(mesh_);
    expand_cut(program.graph, shard_.entries, mesh_);
    remove_dead_nodes(program.graph);
    check(program, "cut");
    const Sharding sharding = propagate(program.graph, router, shard_);
    verify_sharding(program.graph, sharding, router);
    if (options_.dump) {
      options_.dump("shard", "program " + program.name + "\n" +
                                 print_sharding(program.graph, sharding, router));
    }
    program.graph = localize(program.graph, sharding, router, options_.rank);
    check(program, "local");
  }

  void check(const Program& program, std::string_view stage) const {
    verify_graph(program.graph);
    if (options_.dump) {
      options_.dump(stage, "program " + program.name + "\n" + print_graph(program.graph));
    }
  }

  const KernelSupport& support_;
  const CompileOptions& options_;
  Mesh mesh_;
  ShardOptions shard_;
};

std::vector<Program> build_programs(const Config& config, const ModelSpec& spec,
                                    const CompileOptions& options) {
  std::vector<Program> programs;
  if (options.train) {
    programs.push_back({"train", build_step_graph(config, spec, options.keep_gradients)});
  }
  if (options.eval) programs.push_back({"eval", build_eval_graph(config, spec)});
  if (options.logits_seq_len > 0) {
    programs.push_back(
        {"logits", build_logits_graph(config, spec, options.logits_seq_len, options.all_logits)});
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
  options.device_budget = config.memory.device.value_or(0);
  options.host_budget = config.memory.host.value_or(0);
  options.model.parameters = count_parameters(spec);
  options.model.active_parameters = options.model.parameters;
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

}  // namespace

Plan compile(const Config& config, const ModelSpec& spec, const KernelSupport& support,
             const CompileOptions& options) {
  check_lengths(config, spec);
  std::vector<Program> programs = build_programs(config, spec, options);
  const Pipeline pipeline(config, spec, support, options);
  WEFT_CHECK(options.rank >= 0 && options.rank < pipeline.mesh().world(), "compile",
             "got rank {} of {}", options.rank, pipeline.mesh().world());
  std::vector<ProgramInput> inputs;
  for (Program& program : programs) pipeline.lower(program);
  for (const Program& program : programs) inputs.push_back({program.name, &program.graph});
  Plan plan =
      build_plan(inputs, support, plan_options(config, spec, pipeline.mesh(), options.rank));
  if (options.dump) options.dump("plan", plan_text(plan));
  return plan;
}

}  // namespace weft
