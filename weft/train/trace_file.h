// Timelines as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/plan/machine.h"
#include "weft/plan/plan.h"
#include "weft/runtime/session.h"

namespace weft {

/// A program as it ran on one rank.
struct Trace {
  const Plan& plan;
  std::string_view program;
  std::span<const TraceEvent> events;
};

/// The run of one program as a trace document: process = rank, one thread per lane, one event per
/// plan step named by operator and scope, arrows for the waits between lanes, and a thread
/// "phases" that shows forward and backward of each micro-batch. Process world + rank beside it
/// shows the same steps as the plan predicts them for `machine`. Events of one thread never
/// overlap. Throws BugError when an event does not belong to the program.
Json trace_json(const Trace& trace, const MachineSpec& machine);

/// Writes trace_json to `folder`/step-`step`.json, for other ranks than the first to
/// step-`step`.rank-`rank`.json, making the folder. Throws ResourceError.
void write_trace(const std::string& folder, int64_t step, const Trace& trace,
                 const MachineSpec& machine);

}  // namespace weft
