// Who last wrote and read every byte of an arena, by address range. Shared by the pass that adds
// waits and by the verifier, which replays a program on it. Internal to plan/.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// Per lane, a step of that lane; -1 = none.
using LaneSteps = std::array<int32_t, kNumLanes>;
inline constexpr LaneSteps kNoLaneSteps{-1, -1, -1, -1, -1, -1, -1};
static_assert(kNumLanes == 7);

class MemoryMap {
 public:
  struct Segment {
    int64_t end = 0;
    int32_t owner = -1;   // buffer whose value lies here
    int32_t writer = -1;  // step that wrote it; -1 = before the program
    Lane writer_lane = Lane::compute;
    LaneSteps readers = kNoLaneSteps;  // last reader per lane since the write

    void write(int32_t buffer, int32_t step, Lane lane) {
      owner = buffer;
      writer = step;
      writer_lane = lane;
      readers = kNoLaneSteps;
    }
  };

  /// Calls visit_segment(Segment&) for the pieces of [begin, end), cutting segments at the ends.
  /// Bytes never seen before come as a fresh segment.
  template <class Visit>
  void visit(int64_t begin, int64_t end, Visit visit_segment) {
    if (begin >= end) return;
    auto it = segments_.upper_bound(begin);
    if (it != segments_.begin() && std::prev(it)->second.end > begin) {
      it = split(std::prev(it), begin);
    }
    int64_t position = begin;
    while (position < end) {
      if (it == segments_.end() || it->first > position) {
        const int64_t stop = it == segments_.end() ? end : std::min(end, it->first);
        it = segments_.emplace_hint(it, position, Segment{.end = stop});
      }
      if (it->second.end > end) split(it, end);
      visit_segment(it->second);
      position = it->second.end;
      ++it;
    }
  }

  /// [begin, end) becomes one segment owned by `buffer`, written by `step`.
  void overwrite(int64_t begin, int64_t end, int32_t buffer, int32_t step, Lane lane) {
    if (begin >= end) return;
    visit(begin, end, [](Segment&) {});
    auto it = segments_.find(begin);
    auto stop = segments_.lower_bound(end);
    it->second.end = end;
    it->second.write(buffer, step, lane);
    segments_.erase(std::next(it), stop);
  }

 private:
  using Map = std::map<int64_t, Segment>;

  /// Cuts a segment at `at`, strictly inside it or at its start; returns the right part.
  Map::iterator split(Map::iterator it, int64_t at) {
    if (it->first == at) return it;
    Segment right = it->second;
    it->second.end = at;
    return segments_.emplace_hint(std::next(it), at, right);
  }

  Map segments_;
};

/// Calls access(buffer, index, is_write) for every operand of a step, reads first; the workspace
/// counts as written.
template <class Access>
void for_each_access(const std::vector<PlanBuffer>& buffers, const PlanStep& step, Access access) {
  for (int32_t index : step.inputs) {
    if (index >= 0) access(buffers[static_cast<size_t>(index)], index, false);
  }
  for (int32_t index : step.outputs) {
    if (index >= 0) access(buffers[static_cast<size_t>(index)], index, true);
  }
  if (step.workspace >= 0) {
    access(buffers[static_cast<size_t>(step.workspace)], step.workspace, true);
  }
}

}  // namespace weft
