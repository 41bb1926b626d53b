// The passes between the graph of a program and what one rank executes, in order. The list at the
// top of pipeline.cpp names them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/compile/pipeline.h"
#include "weft/compile/recompute.h"
#include "weft/plan/machine.h"
#include "weft/shard/mesh.h"
#include "weft/shard/propagate.h"
#include "weft/shard/redistribute.h"

namespace weft {

/// A program on its way: the logical graph, how it is cut, and what one rank gets of it.
struct Program {
  std::string name;
  Graph logical;
  Sharding sharding;  // with more than one rank
  Graph graph;
};

/// All that is the same for the programs and ranks of one configuration. `support` and `options`
/// must outlive it.
class Lowering {
 public:
  Lowering(const Config& config, const ModelSpec& spec, const KernelSupport& support,
           const CompileOptions& options);

  const Mesh& mesh() const { return mesh_; }

  /// What all ranks share, once per program: the strategy of every node. Throws UsageError where
  /// parallel.shard asks for what cannot be.
  void shard(Program& program);

  /// A selective choice, from whole shapes: all ranks recompute alike.
  RecomputeChoice choose(const Program& program, const MachineSpec& machine) const;

  /// The passes of one rank, in order: fills program.graph.
  void lower(Program& program, int64_t rank, const RecomputeChoice& choice);

  void set_vertical(bool vertical) { vertical_ = vertical; }
  bool vertical() const { return vertical_; }

  /// What the user should know about the given strategies.
  const std::vector<std::string>& advice() const { return advice_; }

  /// Verifies `graph` after pass `stage` and shows it to CompileOptions::dump.
  void check(const std::string& name, std::string_view stage, const Graph& graph) const;

 private:
  double bytes_of_defaults(Graph graph);
  void compare(const Program& program, double usual);

  const KernelSupport& support_;
  const CompileOptions& options_;
  Mesh mesh_;
  Router router_;
  bool vertical_ = false;
  ShardOptions shard_;
  std::vector<ShardEntry> defaults_;  // only when the user gave others
  std::vector<std::string> advice_;
};

}  // namespace weft
