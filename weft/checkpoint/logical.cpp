#include "weft/checkpoint/logical.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <new>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/checkpoint/finite.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 64;

void read_into(StateStore& store, int state, std::vector<char>& buffer) {
  buffer.resize(static_cast<size_t>(store.states()[static_cast<size_t>(state)].type.bytes()));
  store.read_state(state, buffer.data());
}

Box state_box(const PlanState& state) {
  Box box;
  box.begin =
      state.logical.begin.empty() ? Shape(state.logical.shape.size(), 0) : state.logical.begin;
  box.extent = state.type.shape;
  return box;
}

}  // namespace

int64_t snapshot_bytes(const std::vector<PlanState>& states) {
  int64_t total = 0;
  for (const PlanState& state : states) {
    if (is_stored(state)) total += round_up(state.type.bytes(), kAlignment);
  }
  return total;
}

std::vector<LogicalGroup> group_states(const std::vector<PlanState>& states) {
  std::map<std::string, LogicalGroup> groups;
  for (size_t i = 0; i < states.size(); ++i) {
    const PlanState& state = states[i];
    if (!is_stored(state)) continue;
    WEFT_CHECK(!state.logical.name.empty(), "checkpoint", "state \"{}\" has no logical tensor",
               state.name);
    LogicalGroup& group = groups[stored_name(state)];
    if (group.parts.empty()) {
      group.name = stored_name(state);
      group.slot = !state.slot.empty();
      group.dtype = state.type.dtype;
      group.shape = state.logical.shape;
    }
    WEFT_CHECK(group.dtype == state.type.dtype && group.shape == state.logical.shape, "checkpoint",
               "pieces of \"{}\" disagree on dtype or shape", group.name);
    group.parts.push_back({static_cast<int>(i), state_box(state)});
  }
  std::vector<LogicalGroup> result;
  for (auto& [name, group] : groups) {
    std::vector<const Box*> boxes;
    for (const LogicalGroup::Part& part : group.parts) boxes.push_back(&part.box);
    WEFT_CHECK(boxes_cover(boxes, group.shape), "checkpoint",
               "states of \"{}\" {} overlap or leave gaps", name, shape_text(group.shape));
    result.push_back(std::move(group));
  }
  return result;
}

const void* LiveBytes::bytes(int state, std::vector<char>& scratch) {
  read_into(store_, state, scratch);
  return scratch.data();
}

void Snapshot::take(StateStore& store) {
  const std::vector<PlanState>& states = store.states();
  const int64_t needed = snapshot_bytes(states);
  if (needed > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(new (std::nothrow) char[static_cast<size_t>(needed)]);
    if (memory_ == nullptr) {
      throw ResourceError("checkpoint",
                          fmt::format("got no host memory for a snapshot of {} bytes; try "
                                      "checkpoint.async = false",
                                      needed));
    }
    capacity_ = needed;
  }
  offsets_.assign(states.size(), -1);
  int64_t at = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const PlanState& state = states[i];
    if (!is_stored(state)) continue;
    offsets_[i] = at;
    store.read_state(static_cast<int>(i), memory_.get() + at);
    require_finite(stored_name(state), memory_.get() + at, state.type.dtype, state.type.elements());
    at += round_up(state.type.bytes(), kAlignment);
  }
}

const void* Snapshot::bytes(int state, std::vector<char>&) {
  const int64_t offset = offsets_[static_cast<size_t>(state)];
  WEFT_CHECK(offset >= 0, "checkpoint", "state {} is not in the snapshot", state);
  return memory_.get() + offset;
}

const void* Assembler::assemble(const LogicalGroup& group) {
  if (group.parts.size() == 1) return source_.bytes(group.parts[0].state, scratch_);
  whole_.resize(static_cast<size_t>(group.bytes()));
  const Box all{Shape(group.shape.size(), 0), group.shape};
  for (const LogicalGroup::Part& part : group.parts) {
    copy_overlap(part.box, source_.bytes(part.state, scratch_), all, whole_.data(),
                 dtype_size(group.dtype));
  }
  return whole_.data();
}

void require_finite(const std::string& name, const void* data, DType dtype, int64_t count) {
  const int64_t bad = find_nonfinite(data, dtype, count);
  if (bad < 0) return;
  throw AlarmError("checkpoint",
                   fmt::format("tensor \"{}\" holds {} at element {}, expected finite values; the "
                               "state was not saved and older checkpoints stay",
                               name, nonfinite_text(data, dtype, bad), bad));
}

}  // namespace weft
