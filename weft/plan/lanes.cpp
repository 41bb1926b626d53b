#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "weft/plan/memory_map.h"
#include "weft/plan/passes.h"

namespace weft {

namespace {

/// Transfers of one lane whose buffers are kept at a time: more would not make the lane faster.
constexpr size_t kKept = 3;

bool computes(Lane lane) { return lane == Lane::compute || lane == Lane::host; }

}  // namespace

void keep_for_transfers(const PlanProgram& program, const MachineSpec& machine, int32_t index,
                        std::span<PlanBuffer> buffers) {
  const auto num_steps = static_cast<int32_t>(program.steps.size());
  // Time spent computing before each step, as if nothing ever waited.
  std::vector<double> clock = {0.0};
  std::array<std::vector<int32_t>, kNumLanes> transfers;
  for (int32_t i = 0; i < num_steps; ++i) {
    const PlanStep& step = program.steps[static_cast<size_t>(i)];
    const bool works = computes(step.lane);
    if (!works) transfers[static_cast<size_t>(step.lane)].push_back(i);
    clock.push_back(clock.back() + (works ? step_seconds(step, machine) : 0.0));
  }
  std::vector<int32_t> until(program.steps.size(), -1);
  for (const std::vector<int32_t>& lane : transfers) {
    double free = 0;
    for (size_t i = 0; i < lane.size(); ++i) {
      const auto step = static_cast<size_t>(lane[i]);
      free = std::max(free, clock[step]) + step_seconds(program.steps[step], machine);
      const auto hidden =
          std::lower_bound(clock.begin() + lane[i], clock.end(), free) - clock.begin();
      const int32_t next = i + kKept < lane.size() ? lane[i + kKept] : num_steps - 1;
      const auto last =
          std::min({static_cast<int64_t>(hidden), int64_t{next}, int64_t{num_steps} - 1});
      until[step] = static_cast<int32_t>(last);
    }
  }
  for (PlanBuffer& buffer : buffers) {
    if (buffer.program != index) continue;
    buffer.last_step = std::max(buffer.last_step, until[static_cast<size_t>(buffer.last_step)]);
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
