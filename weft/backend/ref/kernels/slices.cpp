// slice and concat: whole ranges of bytes along one dim, for every dtype.
#include <algorithm>
#include <cstring>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

/// Product of extents [begin, end) of a shape.
int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count *= shape[i];
  return count;
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// y = x[…, begin : begin + size, …] along dim; dim -1 is the flattening.
void slice(const Call& call) {
  const int64_t dim = call.attrs().get_int("dim"), begin = call.attrs().get_int("begin");
  const Shape shape = dim < 0 ? Shape{call.elements(0)} : call.shape(0);
  const auto at = static_cast<size_t>(std::max<int64_t>(dim, 0));
  const int64_t row = product(shape, at + 1, shape.size()) * dtype_size(call.type(0).dtype);
  const int64_t bytes = call.attrs().get_int("size") * row;
  const auto* x = call.data<std::byte>(0);
  auto* y = call.out_data<std::byte>(0);
  for (int64_t o = 0; o < product(shape, 0, at); ++o) {
    copy(y + o * bytes, x + (o * shape[at] + begin) * row, bytes);
  }
}

// y = inputs one behind the other along dim.
void concat(const Call& call) {
  const auto at = static_cast<size_t>(call.attrs().get_int("dim"));
  const Shape& shape = call.out_shape(0);
  const int64_t row = product(shape, at + 1, shape.size()) * dtype_size(call.out_type(0).dtype);
  auto* y = call.out_data<std::byte>(0);
  for (int64_t o = 0; o < product(shape, 0, at); ++o) {
    for (size_t i = 0; i < call.num_inputs(); ++i) {
      const int64_t bytes = call.shape(i)[at] * row;
      copy(y, call.data<std::byte>(i) + o * bytes, bytes);
      y += bytes;
    }
  }
}

}  // namespace

RefKernel slice_kernel() { return {&slice}; }
RefKernel concat_kernel() { return {&concat}; }

}  // namespace weft::ref
