#include "weft/checkpoint/fill.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

TensorFill::TensorFill(StateStore& store, const LogicalGroup& group, DType from)
    : store_(store), group_(group), from_(from) {
  for (const LogicalGroup::Part& part : group.parts) {
    if (part.boxes.empty()) continue;
    const TensorType& type = store.states()[static_cast<size_t>(part.state)].type;
    targets_.push_back(
        {&part, type.dtype, std::vector<char>(static_cast<size_t>(type.bytes())), type.elements()});
  }
}

bool TensorFill::needs(const Box& box) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
    const auto& boxes = target.part->boxes;
    return std::any_of(boxes.begin(), boxes.end(),
                       [&](const Box& other) { return overlap_elements(box, other) > 0; });
  });
}

bool TensorFill::needs(const Box& box, int64_t begin, int64_t count) const {
  const std::vector<Box> boxes = flat_boxes(box, begin, count);
  return std::any_of(boxes.begin(), boxes.end(), [&](const Box& other) { return needs(other); });
}

const void* TensorFill::converted(const void* data, int64_t count, DType to) {
  if (to == from_) return data;
  std::vector<char>& chunk = chunks_[to];
  if (!chunk.empty()) return chunk.data();
  const void* stored = to == group_.dtype ? data : converted(data, count, group_.dtype);
  const DType stored_dtype = to == group_.dtype ? from_ : group_.dtype;
  chunk.resize(static_cast<size_t>(count * dtype_size(to)));
  convert_elements(stored, stored_dtype, chunk.data(), to, count);
  return chunk.data();
}

void TensorFill::add(const Box& box, int64_t begin, int64_t count, const void* data) {
  for (auto& [dtype, chunk] : chunks_) chunk.clear();
  for (Target& target : targets_) {
    const int64_t size = dtype_size(target.dtype);
    const void* values = nullptr;  // converted only when some of it is needed
    char* to = target.data.data();
    for (const Box& held : target.part->boxes) {
      if (overlap_elements(box, held) > 0) {
        if (values == nullptr) values = converted(data, count, target.dtype);
        target.missing -= copy_range(box, begin, count, values, held, to, size);
      }
      to += num_elements(held.extent) * size;
    }
  }
}

void TensorFill::write() {
  for (const Target& target : targets_) {
    WEFT_CHECK(target.missing == 0, "checkpoint", "{} elements of \"{}\" came not once",
               target.missing, group_.name);
    store_.write_state(target.part->state, target.data.data());
  }
}

}  // namespace weft
