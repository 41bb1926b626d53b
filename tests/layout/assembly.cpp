#include "tests/layout/assembly.h"

#include <fmt/core.h>

#include <cstring>

#include "weft/base/check.h"

namespace weft::test {
namespace {

/// Where element `index` of the piece is in the logical tensor, row-major.
int64_t place_of(const PlanState& state, int64_t index) {
  const LogicalSlice& slice = state.logical;
  const bool flat = slice.flat_begin >= 0;
  const Shape& box = flat ? slice.extent : state.type.shape;
  WEFT_CHECK(box.size() == slice.shape.size() && slice.begin.size() == slice.shape.size(), "layout",
             "{} has a box of {} dims in {}", state.name, box.size(), shape_text(slice.shape));
  int64_t rest = flat ? slice.flat_begin + index : index;
  Shape at(box.size());
  for (size_t d = box.size(); d-- > 0;) {
    at[d] = slice.begin[d] + rest % box[d];
    rest /= box[d];
  }
  WEFT_CHECK(rest == 0, "layout", "{}: element {} is outside of its box", state.name, index);
  int64_t place = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    WEFT_CHECK(at[d] < slice.shape[d], "layout", "{}: dim {} has no row {}", state.name, d, at[d]);
    place = place * slice.shape[d] + at[d];
  }
  return place;
}

}  // namespace

HostTensor take_piece(const HostTensor& whole, const PlanState& state) {
  WEFT_CHECK(whole.type.shape == state.logical.shape, "layout", "{} is {}, expected {}", state.name,
             shape_text(whole.type.shape), shape_text(state.logical.shape));
  HostTensor piece(state.type);
  for (int64_t i = 0; i < piece.size(); ++i) piece.set(i, whole.get(place_of(state, i)));
  return piece;
}

void Assembly::add(const std::string& name, const PlanState& state, const HostTensor& piece,
                   size_t rank) {
  const auto [found, fresh] = tensors_.try_emplace(name);
  Tensor& tensor = found->second;
  if (fresh) {
    tensor.value = HostTensor({state.type.dtype, state.logical.shape});
    tensor.holder.assign(static_cast<size_t>(tensor.value.size()), -1);
  }
  const auto size = static_cast<size_t>(dtype_size(state.type.dtype));
  for (int64_t i = 0; i < piece.size(); ++i) {
    const auto place = static_cast<size_t>(place_of(state, i));
    std::byte* to = tensor.value.bytes.data() + place * size;
    const std::byte* from = piece.bytes.data() + static_cast<size_t>(i) * size;
    if (tensor.holder[place] < 0) {
      std::memcpy(to, from, size);
      tensor.holder[place] = static_cast<int>(rank);
    } else if (std::memcmp(to, from, size) != 0) {
      differences_.try_emplace(
          name, fmt::format("{}: element {} is {} on rank {} and {} on rank {}", name, place,
                            tensor.value.get(static_cast<int64_t>(place)), tensor.holder[place],
                            piece.get(i), rank));
    }
  }
}

Tensors Assembly::finish(std::vector<std::string>& faults) {
  Tensors result;
  for (auto& [name, tensor] : tensors_) {
    int64_t missing = 0;
    for (const int holder : tensor.holder) missing += holder < 0 ? 1 : 0;
    if (missing > 0) faults.push_back(fmt::format("{}: no rank holds {} elements", name, missing));
    result.emplace(name, std::move(tensor.value));
  }
  for (const auto& [name, difference] : differences_) faults.push_back(difference);
  return result;
}

}  // namespace weft::test
