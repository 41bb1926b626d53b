// Read this page first: how a configuration becomes a Plan.
//
//   Config + ModelSpec
//     -> step graph       forward of every micro-batch, backward, verdict, update (step_graph.cpp)
//     -> expand           fused operators the backend lacks become their unfused definition
//     -> fuse_add         sums fold into the kernels that make their operands
//     -> remove_dead      nodes nothing depends on
//     -> plan             order, liveness, arena, lanes, predicted time (plan/)
//
// Every graph is verified after every pass, the plan after the last one.
#include "weft/compile/pipeline.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/compile/passes.h"
#include "weft/compile/step_graph.h"
#include "weft/plan/build.h"

namespace weft {
namespace {

struct Program {
  std::string name;
  Graph graph;
};

class Pipeline {
 public:
  Pipeline(const KernelSupport& support, const CompileOptions& options)
      : support_(support), options_(options) {}

  /// Runs the passes in order over one program.
  void lower(Program& program) const {
    check(program, "model");
    expand_unsupported(program.graph, support_);
    check(program, "expand");
    fuse_add(program.graph);
    check(program, "fuse");
    remove_dead_nodes(program.graph);
    check(program, "step");
  }

 private:
  void check(const Program& program, std::string_view stage) const {
    verify_graph(program.graph);
    if (options_.dump) {
      options_.dump(stage, "program " + program.name + "\n" + print_graph(program.graph));
    }
  }

  const KernelSupport& support_;
  const CompileOptions& options_;
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

PlanOptions plan_options(const Config& config, const ModelSpec& spec) {
  PlanOptions options;
  options.backend = config.device.backend;
  options.coords = {{"data", 0}, {"op", 0}, {"pipeline", 0}, {"expert", 0}};
  options.device_budget = config.memory.device.value_or(0);
  options.host_budget = config.memory.host.value_or(0);
  options.model.parameters = count_parameters(spec);
  options.model.active_parameters = options.model.parameters;
  options.model.flops_per_token = flops_per_token(spec, config.data.seq_len);
  options.machine =
      default_cpu_machine(static_cast<int>(std::max<int64_t>(1, config.device.threads)));
  options.tokens_per_step =
      config.train.micro_batch * config.train.accumulation * config.data.seq_len;
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
  const Pipeline pipeline(support, options);
  std::vector<ProgramInput> inputs;
  for (Program& program : programs) pipeline.lower(program);
  for (const Program& program : programs) inputs.push_back({program.name, &program.graph});
  Plan plan = build_plan(inputs, support, plan_options(config, spec));
  if (options.dump) options.dump("plan", plan_text(plan));
  return plan;
}

}  // namespace weft
