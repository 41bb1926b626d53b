#include "weft/checkpoint/logical.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <new>
#include <string_view>
#include <unordered_map>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/checkpoint/finite.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 64;

void read_into(StateStore& store, int state, std::vector<char>& buffer) {
  const int64_t bytes = store.states()[static_cast<size_t>(state)].type.bytes();
  buffer.resize(static_cast<size_t>(bytes));
  if (bytes > 0) store.read_state(state, buffer.data());
}

std::vector<LogicalGroup> group(const std::vector<PlanState>& states, bool with_copies) {
  std::unordered_map<std::string_view, const PlanState*> by_name;
  for (const PlanState& state : states) by_name[state.name] = &state;
  std::map<std::string, LogicalGroup> groups;
  for (size_t i = 0; i < states.size(); ++i) {
    const PlanState& state = states[i];
    DType dtype = state.type.dtype;
    if (!is_stored(state)) {
      if (!with_copies || state.init.kind != StateInit::Kind::copy) continue;
      const auto source = by_name.find(state.init.source);
      WEFT_CHECK(source != by_name.end() && is_stored(*source->second), "checkpoint",
                 "state \"{}\" copies \"{}\", expected a state with a value of its own", state.name,
                 state.init.source);
      if (same_piece(*source->second, state)) continue;
      dtype = source->second->type.dtype;
    }
    LogicalGroup& group = groups[stored_name(state)];
    if (group.parts.empty()) {
      group.name = stored_name(state);
      group.slot = !state.slot.empty();
      group.dtype = dtype;
      group.shape = state.logical.shape;
    }
    WEFT_CHECK(group.dtype == dtype && group.shape == state.logical.shape, "checkpoint",
               "pieces of \"{}\" disagree on dtype or shape", group.name);
    group.parts.push_back({static_cast<int>(i), state_boxes(state)});
  }
  std::vector<LogicalGroup> result;
  for (auto& [name, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace

int64_t snapshot_bytes(const std::vector<PlanState>& states) {
  int64_t total = 0;
  for (const PlanState& state : states) {
    if (is_stored(state)) total += round_up(state.type.bytes(), kAlignment);
  }
  return total;
}

std::vector<Box> state_boxes(const PlanState& state) {
  const LogicalSlice& logical = state.logical;
  const int64_t elements = state.type.elements();
  if (elements == 0) return {};
  Box box{logical.begin, logical.flat_begin < 0 ? state.type.shape : logical.extent};
  if (box.begin.empty()) box.begin.assign(logical.shape.size(), 0);
  WEFT_CHECK(box.extent.size() == logical.shape.size() && box.begin.size() == box.extent.size(),
             "checkpoint", "state \"{}\" {} is a piece of {} {}", state.name,
             shape_text(box.extent), logical.name, shape_text(logical.shape));
  if (logical.flat_begin < 0) return {std::move(box)};
  return flat_boxes(box, logical.flat_begin, elements);
}

std::vector<LogicalGroup> group_states(const std::vector<PlanState>& states) {
  return group(states, false);
}

std::vector<LogicalGroup> group_loaded_states(const std::vector<PlanState>& states) {
  return group(states, true);
}

void require_cover(const std::vector<LogicalGroup>& groups) {
  for (const LogicalGroup& group : groups) {
    std::vector<const Box*> boxes;
    for (const LogicalGroup::Part& part : group.parts) {
      for (const Box& box : part.boxes) boxes.push_back(&box);
    }
    WEFT_CHECK(boxes_cover(boxes, group.shape), "checkpoint",
               "states of \"{}\" {} overlap or leave gaps", group.name, shape_text(group.shape));
  }
}

const void* LiveBytes::bytes(int state, std::vector<char>& scratch) {
  read_into(store_, state, scratch);
  return scratch.data();
}

void Snapshot::take(StateStore& store, std::span<const int> states) {
  int64_t needed = 0;
  for (const int state : states) {
    needed += round_up(store.states()[static_cast<size_t>(state)].type.bytes(), kAlignment);
  }
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
  offsets_.assign(store.states().size(), -1);
  int64_t at = 0;
  for (const int index : states) {
    const PlanState& state = store.states()[static_cast<size_t>(index)];
    offsets_[static_cast<size_t>(index)] = at;
    if (state.type.elements() == 0) continue;
    store.read_state(index, memory_.get() + at);
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
  const auto& parts = group.parts;
  if (parts.size() == 1 && parts[0].boxes.size() == 1 && parts[0].boxes[0].extent == group.shape) {
    return source_.bytes(parts[0].state, scratch_);
  }
  whole_.resize(static_cast<size_t>(group.bytes()));
  const Box all{Shape(group.shape.size(), 0), group.shape};
  const int64_t element = dtype_size(group.dtype);
  for (const LogicalGroup::Part& part : parts) {
    if (part.boxes.empty()) continue;
    const auto* data = static_cast<const char*>(source_.bytes(part.state, scratch_));
    for (const Box& box : part.boxes) {
      data += copy_overlap(box, data, all, whole_.data(), element) * element;
    }
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
