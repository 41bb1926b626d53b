#include "weft/base/shape.h"

#include "weft/base/check.h"

namespace weft {

int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    WEFT_CHECK(extent >= 0, "shape", "negative extent in {}", shape_text(shape));
    int64_t next = 0;
    WEFT_CHECK(!__builtin_mul_overflow(count, extent, &next), "shape",
               "number of elements of {} overflows", shape_text(shape));
    count = next;
  }
  return count;
}

int64_t num_rows(const Shape& shape) {
  if (shape.empty()) return 1;
  return num_elements(Shape(shape.begin(), shape.end() - 1));
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace weft
