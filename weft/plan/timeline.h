// The plan in virtual time: when each step of a program begins and ends on its lane, if every step
// takes what the machine's numbers say and waits only for what it must.
#pragma once

#include <vector>

#include "weft/plan/machine.h"
#include "weft/plan/plan.h"

namespace weft {

/// Seconds since the start of the program.
struct StepSpan {
  double begin = 0;
  double end = 0;
};

/// One span per step, in the order of the program.
std::vector<StepSpan> predict_timeline(const PlanProgram& program, const MachineSpec& machine);

}  // namespace weft
