// The steps of build_plan, in the order in which they run. Internal to plan/.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/kernel.h"
#include "weft/plan/build.h"
#include "weft/plan/plan.h"

namespace weft {

// order.cpp

/// The execution order of `graph`: its own order without nodes whose results nobody needs, and
/// with nodes that read only program inputs moved to just before their first reader.
std::vector<NodeId> order_nodes(const Graph& graph);

// liveness.cpp

/// Chooses a buffer for every value that `order` touches and appends the transient ones to
/// `buffers` with their live ranges (offsets stay 0). `state_buffers`: state name -> buffer.
/// Returns the buffer per value, -1 for values the program does not touch. Where an operator
/// allows it and the operand ends there, outputs take over the operand's buffer. Throws BugError
/// when a required alias or a state result cannot be honoured.
std::vector<int32_t> assign_buffers(const Graph& graph, std::span<const NodeId> order,
                                    int32_t program,
                                    const std::map<std::string, int32_t>& state_buffers,
                                    std::vector<PlanBuffer>& buffers);

// arena.cpp

/// A block of memory that is in use during steps first..last.
struct ArenaItem {
  int64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
  int64_t offset = 0;
};

/// Largest sum of bytes in use at one step; `step`, when given, receives the first such step.
int64_t live_peak(std::span<const ArenaItem> items, int32_t* step = nullptr);
/// draft: the best of a few orders. full: that one improved as long as it pays.
enum class Effort : uint8_t { draft, full };
/// Sets the offsets (multiples of kBufferAlignment) so that blocks in use together never overlap;
/// returns the bytes spanned. Tries several orders and keeps the best; deterministic.
int64_t place_items(std::span<ArenaItem> items, Effort effort = Effort::full);

// lanes.cpp

/// Extends the life of buffers that a transfer reads or fills last, until the work meanwhile done
/// on the compute lane is predicted to have hidden the transfer: without that, the next step would
/// take over the memory and wait. `buffers`: the transient ones of the program.
void keep_for_transfers(const PlanProgram& program, const MachineSpec& machine, int32_t index,
                        std::span<PlanBuffer> buffers);

/// Adds to every step the waits that order it after conflicting accesses on other lanes.
void add_waits(const std::vector<PlanBuffer>& buffers, PlanProgram& program);

// cost.cpp

/// Fills plan.traffic from the collectives of the training step.
void count_traffic(Plan& plan);
/// Seconds of one step by the roofline of `machine`, or by its links for a collective.
double step_seconds(const PlanStep& step, const MachineSpec& machine);
/// Fills PlanProgram::flops of every program and plan.time of the training step (or of the first
/// program when there is none).
void predict_time(const PlanOptions& options, Plan& plan);

// advice.cpp

/// Fills plan.tiers, plan.fits and plan.advice once all offsets are known.
void fill_tiers(const PlanOptions& options, Plan& plan);

// plan_text.cpp

/// "1.23 GB" (powers of ten).
std::string human_bytes(int64_t bytes);
/// The memory table alone: one line per class of each tier in use.
std::string memory_table(const Plan& plan);

/// The program and step with the most live bytes of a tier; {-1, -1} when there is no program.
struct PeakMoment {
  int32_t program = -1;
  int32_t step = -1;
};
PeakMoment peak_moment(const Plan& plan, Tier tier = Tier::device);
/// Is `buffer` in use at that moment? States always are.
bool live_at(const PlanBuffer& buffer, PeakMoment moment);

}  // namespace weft
