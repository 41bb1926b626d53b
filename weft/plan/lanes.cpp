#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "weft/plan/memory_map.h"
#include "weft/plan/passes.h"

namespace weft {

void keep_for_transfers(const PlanProgram& program, const MachineSpec& machine, int32_t index,
                        std::span<PlanBuffer> buffers) {
  // Time on the compute lane before each step, as if it never waited.
  std::vector<double> clock = {0.0};
  bool any = false;
  for (const PlanStep& step : program.steps) {
    const bool computes = step.lane == Lane::compute;
    any = any || !computes;
    clock.push_back(clock.back() + (computes ? step_seconds(step, machine) : 0.0));
  }
  if (!any) return;
  std::vector<int32_t> until(program.steps.size(), -1);
  std::array<double, kNumLanes> lane_free{};
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PlanStep& step = program.steps[i];
    if (step.lane == Lane::compute) continue;
    const double seconds = step_seconds(step, machine);
    double& free = lane_free[static_cast<size_t>(step.lane)];
    free = std::max(free, clock[i]) + seconds;
    // A lane that falls behind must not keep everything alive.
    const double end = std::min(free, clock[i] + 4 * seconds);
    const auto later =
        std::lower_bound(clock.begin() + static_cast<std::ptrdiff_t>(i), clock.end(), end);
    until[i] = static_cast<int32_t>(std::min<std::ptrdiff_t>(
        later - clock.begin(), static_cast<std::ptrdiff_t>(program.steps.size()) - 1));
  }
  for (PlanBuffer& buffer : buffers) {
    if (buffer.program != index) continue;
    const int32_t keep = until[static_cast<size_t>(buffer.last_step)];
    if (keep > buffer.last_step &&
        program.steps[static_cast<size_t>(buffer.last_step)].lane != Lane::compute) {
      buffer.last_step = keep;
    }
  }
}

void add_waits(const std::vector<PlanBuffer>& buffers, PlanProgram& program) {
  std::set<Lane> used;
  for (const PlanStep& step : program.steps) used.insert(step.lane);
  if (used.size() < 2) return;

  std::array<MemoryMap, kNumTiers> maps;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    PlanStep& step = program.steps[i];
    const auto id = static_cast<int32_t>(i);
    // Lanes run in order, so the latest conflicting step of each other lane is enough.
    LaneSteps latest = kNoLaneSteps;
    const auto after = [&](const MemoryMap::Segment& segment, bool is_write) {
      if (segment.writer >= 0) {
        int32_t& lane = latest[static_cast<size_t>(segment.writer_lane)];
        lane = std::max(lane, segment.writer);
      }
      if (!is_write) return;
      for (size_t lane = 0; lane < latest.size(); ++lane) {
        latest[lane] = std::max(latest[lane], segment.readers[lane]);
      }
    };
    const auto lane = static_cast<size_t>(step.lane);
    const auto map_of = [&](const Access& access) -> MemoryMap& {
      return maps[static_cast<size_t>(buffers[static_cast<size_t>(access.buffer)].tier)];
    };
    for_each_access(buffers, step, [&](const Access& access) {
      map_of(access).visit(access.begin, access.end,
                           [&](MemoryMap::Segment& segment) { after(segment, access.is_write); });
    });
    for_each_access(buffers, step, [&](const Access& access) {
      MemoryMap& map = map_of(access);
      if (access.is_write) {
        map.overwrite(access.begin, access.end, access.buffer, id, step.lane);
      } else {
        map.visit(access.begin, access.end, [&](MemoryMap::Segment& segment) {
          segment.readers[lane] = std::max(segment.readers[lane], id);
        });
      }
    });
    for (size_t other = 0; other < latest.size(); ++other) {
      if (other != lane && latest[other] >= 0) step.waits.push_back(latest[other]);
    }
    std::sort(step.waits.begin(), step.waits.end());
    step.waits.erase(std::unique(step.waits.begin(), step.waits.end()), step.waits.end());
  }
}

}  // namespace weft
