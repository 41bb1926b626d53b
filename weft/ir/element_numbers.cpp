#include "weft/ir/element_numbers.h"

#include <fmt/format.h>

#include <charconv>

#include "weft/base/check.h"

namespace weft {
namespace {

/// "3,4" up to the next ';'; removes both from `text`.
Shape take_list(std::string_view& text) {
  Shape values;
  const std::string_view list = text.substr(0, text.find(';'));
  text.remove_prefix(std::min(text.size(), list.size() + 1));
  const char* at = list.data();
  const char* end = list.data() + list.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    WEFT_CHECK(error == std::errc() && value >= 0, "element_numbers", "got the list {}", list);
    values.push_back(value);
    at = next < end ? next + 1 : end;
  }
  return values;
}

}  // namespace

ElementNumbers::ElementNumbers(const State& state)
    : shape_(state.logical.shape), begin_(state.logical.begin), extent_(state.logical.extent) {
  if (shape_.empty()) shape_ = state.type.shape;
  begin_.resize(shape_.size(), 0);
  if (state.logical.flat_begin < 0) {
    extent_ = state.type.shape;
  } else {
    first_ = state.logical.flat_begin;
  }
  prepare();
}

ElementNumbers::ElementNumbers(std::string_view text) {
  std::string_view rest = text;
  shape_ = take_list(rest);
  begin_ = take_list(rest);
  extent_ = take_list(rest);
  const Shape first = take_list(rest);
  WEFT_CHECK(first.size() == 1 && rest.empty(), "element_numbers", "got {}", text);
  first_ = first[0];
  prepare();
}

void ElementNumbers::prepare() {
  WEFT_CHECK(begin_.size() == shape_.size() && extent_.size() == shape_.size(), "element_numbers",
             "got a box of {} dims of a tensor {}", extent_.size(), shape_text(shape_));
  for (size_t d = shape_.size(); d-- > 0;) {
    run_ *= extent_[d];
    if (extent_[d] != shape_[d]) break;
  }
  run_ = std::max<int64_t>(run_, 1);
}

std::string ElementNumbers::text() const {
  return fmt::format("{};{};{};{}", fmt::join(shape_, ","), fmt::join(begin_, ","),
                     fmt::join(extent_, ","), first_);
}

int64_t ElementNumbers::number(int64_t at) const {
  int64_t number = 0, stride = 1;
  for (size_t d = shape_.size(); d-- > 0;) {
    number += (begin_[d] + at % extent_[d]) * stride;
    at /= extent_[d];
    stride *= shape_[d];
  }
  return number;
}

}  // namespace weft
