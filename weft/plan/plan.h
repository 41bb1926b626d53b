// The Plan: the bridge between the compile half and the run half. Plain data: every buffer with
// its tier and offset, every step with its lane, operands and waits. Whoever holds a Plan can run
// it (runtime/) or simulate it (sim/) without knowing how it was made. Immutable once verified.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/ir/graph.h"

namespace weft {

/// Lanes run their steps in order; steps of different lanes are ordered by waits only.
enum class Lane : uint8_t { compute, comm, h2d, d2h, nvme_read, nvme_write, host };
inline constexpr int kNumLanes = 7;

std::string_view lane_name(Lane lane);

/// Alignment in bytes of every buffer offset; of the cold tier and of whatever moves from or to it,
/// what direct I/O asks for.
inline constexpr int64_t kBufferAlignment = 64;
inline constexpr int64_t kColdAlignment = 4096;

struct PlanBuffer {
  std::string name;
  MemoryClass memory_class = MemoryClass::activations;
  Tier tier = Tier::device;
  int64_t offset = 0;  // bytes from the start of the tier's arena
  int64_t bytes = 0;
  TensorType type;
  int32_t program = -1;    // index of the program that owns it; -1 = a state, always live
  int32_t first_step = 0;  // live range in steps of that program, both ends included
  int32_t last_step = 0;
};

struct PlanState {
  std::string name;
  StateRole role = StateRole::weight;
  TensorType type;
  int32_t buffer = -1;
  StateInit init;
  LogicalSlice logical;
  std::string slot;
  bool decay = false;
};

struct PlanStep {
  Lane lane = Lane::compute;
  OpKind op{};
  Attrs attrs;
  std::vector<int32_t> inputs;  // buffers; -1 = absent
  std::vector<int32_t> outputs;
  std::vector<TensorType> input_types;  // two values of different type may share a buffer
  std::vector<TensorType> output_types;
  int32_t workspace = -1;      // buffer
  std::vector<int32_t> waits;  // steps of other lanes that must have finished
  std::string scope;
  Phase phase = Phase::forward;
  int32_t micro = 0;
  bool recomputed = false;  // see Node::recomputed
  OpCost cost;
};

/// One program: a training step, an evaluation batch, a forward for generation. Programs share
/// the states; their transient buffers share the rest of the arena.
struct PlanProgram {
  std::string name;  // "train", "eval", "logits"
  std::vector<PlanStep> steps;
  std::map<std::string, int32_t> inputs;     // name -> buffer, written by the caller
  std::map<std::string, int32_t> outputs;    // name -> buffer, readable after the run
  std::map<int32_t, int32_t> state_results;  // state it changes -> step that writes the new value
  int64_t live_peak_bytes = 0;               // largest sum of live transient bytes
  double flops = 0;                          // matmul-like work, for MFU
};

/// Bytes that a run of the program moves over a lane between tiers.
int64_t lane_bytes(const PlanProgram& program, Lane lane);

/// Bytes of one tier of one rank.
struct TierUse {
  int64_t budget = 0;  // 0 = no limit was given
  int64_t peak_bytes = 0;
  std::array<int64_t, 7> by_class{};  // indexed by MemoryClass, at the moment of the peak
};

struct ModelSummary {
  int64_t parameters = 0;
  int64_t active_parameters = 0;
  double flops_per_token = 0;  // 6 x matmul parameters + attention, causal half; docs/metrics.md
};

/// Predicted times in milliseconds.
struct PlanTime {
  double step_ms = 0;
  double compute_ms = 0;
  double comm_exposed_ms = 0;
  double copy_exposed_ms = 0;
  double io_exposed_ms = 0;
  double update_ms = 0;
  double recompute_ms = 0;  // part of compute_ms
  double mfu = 0;
};

struct Plan {
  static constexpr int kVersion = 1;

  std::string backend;
  int32_t rank = 0;
  int32_t world = 1;
  std::map<std::string, int64_t> coords;  // mesh axis -> coordinate
  std::map<std::string, int64_t> mesh;    // mesh axis -> size
  /// Mesh axis -> sorted world ranks that differ from this one along that axis only, with itself.
  std::map<std::string, std::vector<int32_t>> groups;
  /// Mesh axis -> bytes this rank receives from others in one training step.
  std::map<std::string, int64_t> traffic;
  int64_t ranks_per_node = 0;  // 0 = all ranks on one node
  ModelSummary model;
  std::vector<PlanState> states;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanProgram> programs;
  std::array<TierUse, kNumTiers> tiers{};
  /// Host bytes that background checkpoints copy the state into; part of the host tier's peak, held
  /// by the checkpoint writer and not by an arena.
  int64_t snapshot_bytes = 0;
  PlanTime time;
  bool fits = true;
  std::vector<std::string> notes;   // what was decided, and why
  std::vector<std::string> advice;  // what the user could do

  /// Throws BugError when there is no such program.
  const PlanProgram& program(std::string_view name) const;
  const PlanState* find_state(std::string_view name) const;
};

/// The plans of all ranks of a job. Ranks whose pieces have the same shapes share a plan.
struct ClusterPlan {
  struct Rank {
    int32_t plan = 0;                       // index in `plans`
    std::map<std::string, int64_t> coords;  // mesh axis -> coordinate
  };
  std::vector<Plan> plans;
  std::vector<Rank> ranks;
  int64_t ranks_per_node = 0;  // 0 = all on one node

  const Plan& plan_of(int64_t rank) const;
  bool fits() const;
};

/// The document of `weft plan --json` (docs/formats/plan.md). The other form lists all ranks.
Json plan_summary_json(const Plan& plan);
Json plan_summary_json(const ClusterPlan& cluster);
/// Table of the ranks that share a plan: how many, which, their bytes.
std::string ranks_table(const ClusterPlan& cluster);
/// Table of axes: ranks, bytes each rank receives per step, whether the axis crosses nodes.
std::string traffic_table(const Plan& plan, int64_t ranks_per_node);
/// Mesh axes whose groups span nodes of `ranks_per_node` ranks.
std::vector<std::string> axes_across_nodes(const Plan& plan, int64_t ranks_per_node);
/// The whole plan, steps and buffers included; the form of golden plans.
Json plan_json(const Plan& plan);
/// The table of plan.txt.
std::string plan_text(const Plan& plan);
/// Proves: offsets are aligned, no two live buffers overlap, every operand holds the value written
/// to it (also across lanes: a wait orders every pair of accesses that conflict), waits point
/// backwards to other lanes, the numbers of the tiers are true and budgets are kept whenever
/// plan.fits, every state result lies in the state's buffer. Throws BugError.
void verify_plan(const Plan& plan);

}  // namespace weft
