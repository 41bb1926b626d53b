#include "weft/plan/plan.h"

#include "weft/base/check.h"
#include "weft/ir/graph.h"

namespace weft {

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::comm: return "comm";
    case Lane::h2d: return "h2d";
    case Lane::d2h: return "d2h";
    case Lane::nvme_read: return "nvme_read";
    case Lane::nvme_write: return "nvme_write";
    case Lane::host: return "host";
  }
  throw BugError("plan", "unknown lane");
}

int64_t lane_bytes(const PlanProgram& program, Lane lane) {
  int64_t bytes = 0;
  for (const PlanStep& step : program.steps) {
    if (step.lane != lane) continue;
    // A store gives the state that it overwrites, a load what it reads.
    const bool stores = !op_def(step.op).aliases.empty();
    bytes += stores ? step.input_types[0].bytes() : step.output_types[0].bytes();
  }
  return bytes;
}

const PlanProgram& Plan::program(std::string_view name) const {
  for (const PlanProgram& entry : programs) {
    if (entry.name == name) return entry;
  }
  throw BugError("plan", fmt::format("got program {}, which the plan does not have", name));
}

const PlanState* Plan::find_state(std::string_view name) const {
  for (const PlanState& state : states) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

}  // namespace weft
