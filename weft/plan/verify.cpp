#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/check.h"
#include "weft/plan/memory_map.h"
#include "weft/plan/passes.h"

namespace weft {
namespace {

constexpr const char* kWhere = "verify_plan";

size_t at(int32_t index) { return static_cast<size_t>(index); }

int32_t last_step_of(const PlanProgram& program) {
  return std::max<int32_t>(0, static_cast<int32_t>(program.steps.size()) - 1);
}

void check_buffers(const Plan& plan) {
  const auto num_programs = static_cast<int32_t>(plan.programs.size());
  for (const PlanBuffer& b : plan.buffers) {
    const int64_t alignment = b.tier == Tier::nvme ? kColdAlignment : kBufferAlignment;
    WEFT_CHECK(b.offset >= 0 && b.offset % alignment == 0, kWhere,
               "buffer {} has offset {}, expected a multiple of {}", b.name, b.offset, alignment);
    WEFT_CHECK(b.bytes >= b.type.bytes(), kWhere, "buffer {} has {} bytes, its type needs {}",
               b.name, b.bytes, b.type.bytes());
    WEFT_CHECK(b.program >= -1 && b.program < num_programs, kWhere,
               "buffer {} belongs to program {} of {}", b.name, b.program, num_programs);
    if (b.program < 0) continue;
    WEFT_CHECK(b.first_step >= 0 && b.first_step <= b.last_step &&
                   b.last_step <= last_step_of(plan.programs[at(b.program)]),
               kWhere, "buffer {} is in use during steps {}..{}", b.name, b.first_step,
               b.last_step);
  }
}

void check_tiers(const Plan& plan) {
  std::array<int64_t, kNumTiers> peaks{};
  for (const PlanBuffer& b : plan.buffers) {
    int64_t& peak = peaks[static_cast<size_t>(b.tier)];
    peak = std::max(peak, round_up(b.offset + b.bytes, kBufferAlignment));
  }
  bool fits = true;
  for (size_t i = 0; i < peaks.size(); ++i) {
    const TierUse& use = plan.tiers[i];
    const std::string_view name = tier_name(static_cast<Tier>(i));
    WEFT_CHECK(use.peak_bytes == peaks[i], kWhere, "tier {} plans {} bytes, its buffers need {}",
               name, use.peak_bytes, peaks[i]);
    int64_t sum = 0;
    for (int64_t bytes : use.by_class) sum += bytes;
    WEFT_CHECK(sum <= use.peak_bytes, kWhere, "the classes of tier {} sum to {} bytes of {}", name,
               sum, use.peak_bytes);
    const bool over = use.budget > 0 && use.peak_bytes > use.budget;
    WEFT_CHECK(!over || !plan.fits, kWhere,
               "tier {} plans {} bytes, over its budget of {}, in a plan said to fit", name,
               use.peak_bytes, use.budget);
    fits = fits && !over;
  }
  WEFT_CHECK(fits == plan.fits, kWhere, "the plan is said not to fit, but every budget is kept");
}

void check_state_table(const Plan& plan) {
  std::set<int32_t> used;
  for (const PlanState& state : plan.states) {
    WEFT_CHECK(state.buffer >= 0 && at(state.buffer) < plan.buffers.size(), kWhere,
               "state {} has buffer {}", state.name, state.buffer);
    const PlanBuffer& buffer = plan.buffers[at(state.buffer)];
    WEFT_CHECK(buffer.program == -1 && buffer.bytes == state.type.bytes(), kWhere,
               "state {} lies in buffer {}, which is not its own", state.name, buffer.name);
    WEFT_CHECK(used.insert(state.buffer).second, kWhere, "two states lie in buffer {}",
               buffer.name);
  }
}

/// No two buffers of one program (states included) share bytes while both are in use.
void check_overlaps(const Plan& plan) {
  for (size_t p = 0; p < std::max<size_t>(1, plan.programs.size()); ++p) {
    std::vector<int32_t> order;
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const PlanBuffer& b = plan.buffers[i];
      if (b.bytes > 0 && (b.program < 0 || at(b.program) == p)) {
        order.push_back(static_cast<int32_t>(i));
      }
    }
    const auto first = [&](int32_t id) {
      const PlanBuffer& b = plan.buffers[at(id)];
      return b.program < 0 ? -1 : b.first_step;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return first(a) < first(b); });
    std::array<std::map<int64_t, int32_t>, kNumTiers> live;  // offset -> buffer
    std::multimap<int32_t, int32_t> ends;                    // last step -> buffer
    for (int32_t id : order) {
      const PlanBuffer& b = plan.buffers[at(id)];
      while (!ends.empty() && ends.begin()->first < first(id)) {
        const PlanBuffer& done = plan.buffers[at(ends.begin()->second)];
        live[static_cast<size_t>(done.tier)].erase(done.offset);
        ends.erase(ends.begin());
      }
      std::map<int64_t, int32_t>& map = live[static_cast<size_t>(b.tier)];
      const auto next = map.lower_bound(b.offset);
      const auto check_apart = [&](int32_t other) {
        const PlanBuffer& o = plan.buffers[at(other)];
        WEFT_CHECK(o.offset + o.bytes <= b.offset || b.offset + b.bytes <= o.offset, kWhere,
                   "buffers {} [{}, {}) and {} [{}, {}) overlap while both are in use", o.name,
                   o.offset, o.offset + o.bytes, b.name, b.offset, b.offset + b.bytes);
      };
      if (next != map.end()) check_apart(next->second);
      if (next != map.begin()) check_apart(std::prev(next)->second);
      map.emplace(b.offset, id);
      if (b.program >= 0) ends.emplace(b.last_step, id);
    }
  }
}

std::string step_text(const PlanProgram& program, int32_t step) {
  const PlanStep& s = program.steps[at(step)];
  return fmt::format("step {} of {} ({}, {})", step, program.name, op_def(s.op).name, s.scope);
}

void check_operand_list(const Plan& plan, int32_t p, int32_t step,
                        const std::vector<int32_t>& operands,
                        const std::vector<TensorType>& types) {
  const PlanProgram& program = plan.programs[at(p)];
  WEFT_CHECK(operands.size() == types.size(), kWhere, "{} has {} operands with {} types",
             step_text(program, step), operands.size(), types.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    const int32_t id = operands[i];
    WEFT_CHECK(id >= -1 && id < static_cast<int32_t>(plan.buffers.size()), kWhere,
               "{} names buffer {}", step_text(program, step), id);
    WEFT_CHECK((id >= 0) == types[i].present(), kWhere, "{} has operand {} without memory or type",
               step_text(program, step), i);
    if (id < 0) continue;
    const PlanBuffer& b = plan.buffers[at(id)];
    WEFT_CHECK(types[i].bytes() <= b.bytes, kWhere, "{} uses {} bytes of buffer {}, which has {}",
               step_text(program, step), types[i].bytes(), b.name, b.bytes);
    WEFT_CHECK(b.program == -1 || (b.program == p && b.first_step <= step && step <= b.last_step),
               kWhere, "{} uses buffer {} outside its live range", step_text(program, step),
               b.name);
  }
}

/// Kernels find their operands where their lane computes; only transfers cross.
void check_tiers_of(const Plan& plan, int32_t p, int32_t step) {
  const PlanProgram& program = plan.programs[at(p)];
  const PlanStep& s = program.steps[at(step)];
  if (op_def(s.op).transfer) return;
  const Tier expected = s.lane == Lane::host ? Tier::host : Tier::device;
  for (const auto* operands : {&s.inputs, &s.outputs}) {
    for (const int32_t id : *operands) {
      if (id < 0 || at(id) >= plan.buffers.size()) continue;
      WEFT_CHECK(plan.buffers[at(id)].tier == expected, kWhere, "{} computes on {} memory in {}",
                 step_text(program, step), tier_name(plan.buffers[at(id)].tier),
                 plan.buffers[at(id)].name);
    }
  }
}

/// Pieces lie inside of what they are pieces of.
void check_piece(const Plan& plan, int32_t p, int32_t step) {
  const PlanProgram& program = plan.programs[at(p)];
  for_each_access(plan.buffers, program.steps[at(step)], [&](const Access& access) {
    const PlanBuffer& b = plan.buffers[at(access.buffer)];
    WEFT_CHECK(b.offset <= access.begin && access.end <= b.offset + b.bytes, kWhere,
               "{} moves bytes {} to {} of buffer {}, which has {}", step_text(program, step),
               access.begin - b.offset, access.end - b.offset, b.name, b.bytes);
  });
}

/// A state that is stored piece by piece is stored as a whole, every byte once.
void check_stored_states(const Plan& plan, const PlanProgram& program) {
  std::map<int32_t, std::vector<std::pair<int64_t, int64_t>>> stored;  // buffer -> ranges
  for (const PlanStep& step : program.steps) {
    const OpDef& def = op_def(step.op);
    if (!def.transfer || def.aliases.empty()) continue;
    for_each_access(plan.buffers, step, [&](const Access& access) {
      const PlanBuffer& b = plan.buffers[at(access.buffer)];
      if (!access.is_write || b.program >= 0) return;
      stored[access.buffer].emplace_back(access.begin - b.offset, access.end - b.offset);
    });
  }
  for (auto& [id, ranges] : stored) {
    const PlanBuffer& b = plan.buffers[at(id)];
    std::sort(ranges.begin(), ranges.end());
    int64_t end = 0;
    for (const auto& range : ranges) {
      WEFT_CHECK(range.first == end, kWhere, "{} stores bytes {} to {} of state {}, expected {} on",
                 program.name, range.first, range.second, b.name, end);
      end = range.second;
    }
    WEFT_CHECK(end == b.bytes, kWhere, "{} stores {} of the {} bytes of state {}", program.name,
               end, b.bytes, b.name);
  }
}

void check_operands(const Plan& plan, int32_t p) {
  const PlanProgram& program = plan.programs[at(p)];
  for (int32_t step = 0; at(step) < program.steps.size(); ++step) {
    const PlanStep& s = program.steps[at(step)];
    check_tiers_of(plan, p, step);
    check_operand_list(plan, p, step, s.inputs, s.input_types);
    check_operand_list(plan, p, step, s.outputs, s.output_types);
    if (op_def(s.op).transfer) check_piece(plan, p, step);
    if (s.workspace >= 0) {
      WEFT_CHECK(at(s.workspace) < plan.buffers.size(), kWhere, "{} names workspace {}",
                 step_text(program, step), s.workspace);
      check_operand_list(plan, p, step, {s.workspace}, {plan.buffers[at(s.workspace)].type});
    }
    for (int32_t wait : s.waits) {
      WEFT_CHECK(wait >= 0 && wait < step, kWhere, "{} waits for step {}, expected an earlier one",
                 step_text(program, step), wait);
      WEFT_CHECK(program.steps[at(wait)].lane != s.lane, kWhere,
                 "{} waits for step {} of its own lane", step_text(program, step), wait);
    }
  }
}

/// Replays one program on a map of the memory. `done_[s][lane]` is the latest step of each lane
/// that is certain to have finished when step s starts (a vector clock).
class Replay {
 public:
  Replay(const Plan& plan, int32_t p) : plan_(plan), program_(plan.programs[at(p)]) {
    const auto own = [&](int32_t id) {
      const PlanBuffer& b = plan.buffers[at(id)];
      map(b).overwrite(b.offset, b.offset + b.bytes, id, -1, Lane::compute);
    };
    for (const PlanState& state : plan.states) own(state.buffer);
    for (const auto& [name, id] : program_.inputs) {
      check_named(p, name, id);
      WEFT_CHECK(plan.buffers[at(id)].first_step == 0, kWhere,
                 "input {} of {} is in use from step {}, expected 0", name, program_.name,
                 plan.buffers[at(id)].first_step);
      own(id);
    }
  }

  void run(int32_t p) {
    done_.resize(program_.steps.size(), kNoLaneSteps);
    LaneSteps latest = kNoLaneSteps;  // per lane
    for (int32_t step = 0; at(step) < program_.steps.size(); ++step) {
      const PlanStep& s = program_.steps[at(step)];
      const auto lane = static_cast<size_t>(s.lane);
      if (latest[lane] >= 0) join(step, latest[lane]);
      for (int32_t wait : s.waits) join(step, wait);
      check_step(step, s);
      latest[lane] = step;
    }
    for (const auto& [name, id] : program_.outputs) {
      check_named(p, name, id);
      WEFT_CHECK(plan_.buffers[at(id)].program == -1 ||
                     plan_.buffers[at(id)].last_step == last_step_of(program_),
                 kWhere, "output {} of {} is given up before the end", name, program_.name);
      check_holds(id, fmt::format("output {} of {}", name, program_.name));
    }
    check_states();
  }

 private:
  MemoryMap& map(const PlanBuffer& b) { return maps_[static_cast<size_t>(b.tier)]; }

  void check_named(int32_t p, const std::string& name, int32_t id) const {
    WEFT_CHECK(id >= 0 && at(id) < plan_.buffers.size() &&
                   (plan_.buffers[at(id)].program == -1 || plan_.buffers[at(id)].program == p),
               kWhere, "{} of {} has buffer {}", name, program_.name, id);
  }

  void join(int32_t step, int32_t earlier) {
    LaneSteps& mine = done_[at(step)];
    for (size_t lane = 0; lane < mine.size(); ++lane) {
      mine[lane] = std::max(mine[lane], done_[at(earlier)][lane]);
    }
    int32_t& own = mine[static_cast<size_t>(program_.steps[at(earlier)].lane)];
    own = std::max(own, earlier);
  }

  void check_after(int32_t step, int32_t earlier, Lane lane, const PlanBuffer& b) const {
    WEFT_CHECK(earlier <= done_[at(step)][static_cast<size_t>(lane)], kWhere,
               "{} and step {} both use the memory of buffer {}, and no wait orders them",
               step_text(program_, step), earlier, b.name);
  }

  void check_step(int32_t step, const PlanStep& s) {
    for_each_access(plan_.buffers, s, [&](const Access& access) {
      const int32_t id = access.buffer;
      const bool is_write = access.is_write;
      const PlanBuffer& b = plan_.buffers[at(id)];
      map(b).visit(access.begin, access.end, [&](MemoryMap::Segment& segment) {
        if (!is_write) {
          WEFT_CHECK(segment.owner == id, kWhere, "{} reads buffer {}, which {}",
                     step_text(program_, step), b.name, fate(segment));
        }
        if (segment.writer >= 0) check_after(step, segment.writer, segment.writer_lane, b);
        if (!is_write) return;
        for (size_t lane = 0; lane < segment.readers.size(); ++lane) {
          check_after(step, segment.readers[lane], static_cast<Lane>(lane), b);
        }
      });
    });
    const auto lane = static_cast<size_t>(s.lane);
    for_each_access(plan_.buffers, s, [&](const Access& access) {
      const PlanBuffer& b = plan_.buffers[at(access.buffer)];
      if (access.is_write) {
        map(b).overwrite(access.begin, access.end, access.buffer, step, s.lane);
        last_writer_[access.buffer] = step;
      } else {
        map(b).visit(access.begin, access.end,
                     [&](MemoryMap::Segment& segment) { segment.readers[lane] = step; });
      }
    });
  }

  std::string fate(const MemoryMap::Segment& segment) const {
    if (segment.owner < 0) return "nothing has written";
    return fmt::format("buffer {} has overwritten", plan_.buffers[at(segment.owner)].name);
  }

  void check_holds(int32_t id, const std::string& what) {
    const PlanBuffer& b = plan_.buffers[at(id)];
    map(b).visit(b.offset, b.offset + b.bytes, [&](MemoryMap::Segment& segment) {
      WEFT_CHECK(segment.owner == id, kWhere, "{} lies in buffer {}, which {}", what, b.name,
                 fate(segment));
    });
  }

  void check_states() {
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const PlanState& state = plan_.states[i];
      check_holds(state.buffer, "state " + state.name);
      const auto result = program_.state_results.find(static_cast<int32_t>(i));
      const auto writer = last_writer_.find(state.buffer);
      if (result == program_.state_results.end()) {
        WEFT_CHECK(writer == last_writer_.end(), kWhere,
                   "{} writes state {}, which program {} does not change",
                   step_text(program_, writer->second), state.name, program_.name);
      } else {
        WEFT_CHECK(writer != last_writer_.end() && writer->second == result->second, kWhere,
                   "the result of state {} in {} is not written into the state's buffer by step {}",
                   state.name, program_.name, result->second);
      }
    }
    for (const auto& [state, step] : program_.state_results) {
      WEFT_CHECK(state >= 0 && at(state) < plan_.states.size(), kWhere,
                 "program {} changes state {}, which does not exist", program_.name, state);
    }
  }

  const Plan& plan_;
  const PlanProgram& program_;
  std::array<MemoryMap, kNumTiers> maps_;
  std::vector<LaneSteps> done_;
  std::map<int32_t, int32_t> last_writer_;  // buffer -> step
};

}  // namespace

void verify_plan(const Plan& plan) {
  check_buffers(plan);
  check_tiers(plan);
  check_state_table(plan);
  check_overlaps(plan);
  for (int32_t p = 0; at(p) < plan.programs.size(); ++p) {
    check_operands(plan, p);
    check_stored_states(plan, plan.programs[at(p)]);
    Replay(plan, p).run(p);
  }
}

}  // namespace weft
