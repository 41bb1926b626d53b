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

/// The bytes of a buffer that a step touches.
struct Access {
  int32_t buffer = -1;
  bool is_write = false;
  int64_t begin = 0;  // in the tier's arena
  int64_t end = 0;
};

/// Calls access(Access) for every operand of a step, reads first; the workspace counts as written.
/// Transfers touch the piece they move, other operators whole buffers.
template <class Visit>
void for_each_access(const std::vector<PlanBuffer>& buffers, const PlanStep& step, Visit visit) {
  const auto whole = [&](int32_t index, bool is_write) {
    if (index < 0) return;
    const PlanBuffer& b = buffers[static_cast<size_t>(index)];
    visit(Access{index, is_write, b.offset, b.offset + b.bytes});
  };
  const OpDef& def = op_def(step.op);
  if (def.transfer) {
    const int64_t element = dtype_size(step.input_types[0].dtype);
    const int64_t begin = step.attrs.get_int("begin", 0) * element;
    const auto piece = [&](int32_t index, bool is_write, int64_t bytes) {
      const PlanBuffer& b = buffers[static_cast<size_t>(index)];
      visit(Access{index, is_write, b.offset + begin, b.offset + begin + bytes});
    };
    if (def.aliases.empty()) {  // load: a piece of the source becomes a value of its own
      piece(step.inputs[0], false, step.output_types[0].bytes());
      whole(step.outputs[0], true);
    } else {  // store: a value becomes a piece of the target
      whole(step.inputs[0], false);
      piece(step.outputs[0], true, step.input_types[0].bytes());
    }
    return;
  }
  for (int32_t index : step.inputs) whole(index, false);
  for (int32_t index : step.outputs) whole(index, true);
  whole(step.workspace, true);
}

}  // namespace weft
