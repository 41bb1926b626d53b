#include "weft/compile/lowering.h"

#include <fmt/core.h>

#include <utility>

#include "weft/compile/default_shards.h"
#include "weft/compile/passes.h"
#include "weft/compile/vertical.h"
#include "weft/shard/localize.h"

namespace weft {
namespace {

/// Bytes of a call that several gradients share: large enough to fill a link, small enough to
/// start while most of the backward pass is still to come.
constexpr int64_t kBucketBytes = int64_t{32} << 20;

/// About the matrices of half a layer.
constexpr int32_t kGathersAhead = 4;

}  // namespace

Lowering::Lowering(const Config& config, const ModelSpec& spec, const KernelSupport& support,
                   const CompileOptions& options)
    : support_(support), options_(options), mesh_(make_mesh(config.parallel)), router_(mesh_) {
  vertical_ = config.train.microbatch_order == "vertical";
  shard_.sequence = config.parallel.sequence;
  shard_.zero = static_cast<int>(config.parallel.zero);
  if (mesh_.world() == 1) return;
  shard_.entries = shard_entries(config, spec, mesh_);
  if (!config.parallel.shard.empty() && config.parallel.op > 1 &&
      config.parallel.op <= spec.num_kv_heads) {
    defaults_ = default_entries(spec);
  }
}

void Lowering::shard(Program& program) {
  check(program.name, "model", program.logical);
  if (mesh_.world() == 1) return;
  const double usual = defaults_.empty() ? 0.0 : bytes_of_defaults(program.logical);
  expand_cut(program.logical, shard_.entries, mesh_);
  remove_dead_nodes(program.logical);
  check(program.name, "cut", program.logical);
  program.sharding = propagate(program.logical, router_, shard_);
  verify_sharding(program.logical, program.sharding, router_);
  if (!defaults_.empty()) compare(program, usual);
  if (options_.dump) {
    options_.dump("shard", "program " + program.name + "\n" +
                               print_sharding(program.logical, program.sharding, router_));
  }
}

RecomputeChoice Lowering::choose(const Program& program, const MachineSpec& machine) const {
  Graph graph = program.logical;
  expand_unsupported(graph, support_);
  fuse_add(graph);
  remove_dead_nodes(graph);
  return choose_selective(graph, machine);
}

void Lowering::lower(Program& program, int64_t rank, const RecomputeChoice& choice) {
  if (mesh_.world() == 1) {
    program.graph = program.logical;
  } else {
    program.graph = localize(program.logical, program.sharding, router_, rank);
    check(program.name, "local", program.graph);
  }
  number_moments(program.graph);
  expand_unsupported(program.graph, support_);
  check(program.name, "expand", program.graph);
  fuse_add(program.graph);
  check(program.name, "fuse", program.graph);
  remove_dead_nodes(program.graph);
  if (vertical_) {
    order_vertically(program.graph);
    check(program.name, "vertical", program.graph);
  }
  if (!choice.empty()) {
    recompute(program.graph, choice);
    remove_dead_nodes(program.graph);
    check(program.name, "recompute", program.graph);
  }
  start_collectives(program.graph);
  if (program.name == "train") add_overflow_probes(program.graph);
  check(program.name, "probes", program.graph);
  bucket_collectives(program.graph, kBucketBytes);
  prefetch_weights(program.graph, kGathersAhead);
  check(program.name, "step", program.graph);
}

void Lowering::check(const std::string& name, std::string_view stage, const Graph& graph) const {
  verify_graph(graph);
  if (options_.dump) options_.dump(stage, "program " + name + "\n" + print_graph(graph));
}

/// Bytes over op with the family's own strategies.
double Lowering::bytes_of_defaults(Graph graph) {
  ShardOptions options = shard_;
  options.entries = defaults_;
  expand_cut(graph, options.entries, mesh_);
  remove_dead_nodes(graph);
  const Sharding sharding = propagate(graph, router_, options);
  return moved_bytes(graph, sharding, router_, mesh_.find("op"));
}

/// Says when the given strategies move more than the usual ones, as the pair "cut the first
/// matmul by rows, the second by columns" does.
void Lowering::compare(const Program& program, double usual) {
  const double given = moved_bytes(program.logical, program.sharding, router_, mesh_.find("op"));
  if (given <= usual * 1.01) return;
  advice_.push_back(fmt::format(
      "[parallel.shard] moves {:.0f} bytes per rank and {} over op, the usual strategies {:.0f}: "
      "cut the first matmul of a pair by its output (weight = [\"\", \"op\"]) and the second by "
      "its input (weight = [\"op\", \"\"])",
      given, program.name == "train" ? "step" : program.name, usual));
}

}  // namespace weft
