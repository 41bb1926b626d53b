#include "weft/checkpoint/box.h"

#include <algorithm>
#include <cstring>

#include "weft/base/check.h"

namespace weft {
namespace {

struct Overlap {
  Shape begin;
  Shape extent;
  int64_t elements = 1;
};

Overlap overlap_of(const Box& a, const Box& b) {
  WEFT_CHECK(a.begin.size() == b.begin.size() && a.extent.size() == b.extent.size() &&
                 a.begin.size() == a.extent.size(),
             "box", "ranks differ: {} and {}", shape_text(a.extent), shape_text(b.extent));
  Overlap result;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    const int64_t end = std::min(a.begin[d] + a.extent[d], b.begin[d] + b.extent[d]);
    result.begin.push_back(begin);
    result.extent.push_back(std::max<int64_t>(end - begin, 0));
    result.elements *= result.extent.back();
  }
  return result;
}

/// Position of `index` in the packed content of `box`.
int64_t position(const Box& box, const Shape& index) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at = at * box.extent[d] + index[d] - box.begin[d];
  return at;
}

/// Appends what [begin, begin + count) of the flattening of dims [dim, rank) is, at `index` of the
/// dims before.
void cut_range(const Box& box, size_t dim, Shape& index, int64_t begin, int64_t count,
               std::vector<Box>& out) {
  if (count == 0) return;
  const size_t rank = box.extent.size();
  const auto push = [&](int64_t rows) {
    Box piece{index, Shape(rank, 1)};
    for (size_t d = dim; d < rank; ++d) {
      piece.begin[d] = d == dim ? index[d] : box.begin[d];
      piece.extent[d] = d == dim ? rows : box.extent[d];
    }
    out.push_back(std::move(piece));
  };
  if (dim == rank) {
    push(1);
    return;
  }
  int64_t inner = 1;
  for (size_t d = dim + 1; d < rank; ++d) inner *= box.extent[d];
  index[dim] = box.begin[dim] + begin / inner;
  const int64_t skip = begin % inner;
  if (skip != 0 || count < inner) {
    const int64_t head = std::min(count, inner - skip);
    cut_range(box, dim + 1, index, skip, head, out);
    count -= head;
    ++index[dim];
  }
  if (const int64_t rows = count / inner; rows > 0) {
    push(rows);
    index[dim] += rows;
  }
  cut_range(box, dim + 1, index, 0, count % inner, out);
}

}  // namespace

std::vector<Box> flat_boxes(const Box& box, int64_t begin, int64_t count) {
  const int64_t elements = num_elements(box.extent);
  WEFT_CHECK(box.begin.size() == box.extent.size() && begin >= 0 && count >= 0 &&
                 begin <= elements && count <= elements - begin,
             "box", "range {} + {} is not inside {}", begin, count, shape_text(box.extent));
  std::vector<Box> result;
  Shape index = box.begin;
  cut_range(box, 0, index, begin, count, result);
  return result;
}

int64_t copy_range(const Box& from, int64_t begin, int64_t count, const void* source, const Box& to,
                   void* target, int64_t element_bytes) {
  int64_t copied = 0;
  const auto* data = static_cast<const char*>(source);
  for (const Box& box : flat_boxes(from, begin, count)) {
    copied += copy_overlap(box, data, to, target, element_bytes);
    data += num_elements(box.extent) * element_bytes;
  }
  return copied;
}

int64_t overlap_elements(const Box& a, const Box& b) { return overlap_of(a, b).elements; }

int64_t copy_overlap(const Box& from, const void* source, const Box& to, void* target,
                     int64_t element_bytes) {
  const Overlap common = overlap_of(from, to);
  if (common.elements == 0) return 0;
  // Trailing dims that both boxes hold whole are one run with the dim before them.
  size_t outer = common.extent.size();
  int64_t run = 1;
  while (outer > 0) {
    const size_t d = --outer;
    run *= common.extent[d];
    if (common.extent[d] != from.extent[d] || common.extent[d] != to.extent[d]) break;
  }
  const auto* in = static_cast<const char*>(source);
  auto* out = static_cast<char*>(target);
  Shape index = common.begin;
  for (int64_t done = 0; done < common.elements; done += run) {
    std::memcpy(out + position(to, index) * element_bytes,
                in + position(from, index) * element_bytes,
                static_cast<size_t>(run * element_bytes));
    for (size_t d = outer; d-- > 0;) {
      if (++index[d] < common.begin[d] + common.extent[d]) break;
      index[d] = common.begin[d];
    }
  }
  return common.elements;
}

bool boxes_cover(const std::vector<const Box*>& boxes, const Shape& shape) {
  int64_t sum = 0;
  for (const Box* box : boxes) {
    if (box->begin.size() != shape.size() || box->extent.size() != shape.size()) return false;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (box->begin[d] < 0 || box->extent[d] < 0 || box->begin[d] > shape[d] ||
          box->extent[d] > shape[d] - box->begin[d]) {
        return false;
      }
    }
    if (__builtin_add_overflow(sum, num_elements(box->extent), &sum)) return false;
  }
  if (sum != num_elements(shape)) return false;
  // Sorted along the first dim, a box can only meet those that begin before it ends.
  std::vector<const Box*> sorted = boxes;
  if (!shape.empty()) {
    std::sort(sorted.begin(), sorted.end(),
              [](const Box* a, const Box* b) { return a->begin[0] < b->begin[0]; });
  }
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size(); ++j) {
      if (!shape.empty() && sorted[j]->begin[0] >= sorted[i]->begin[0] + sorted[i]->extent[0]) {
        break;
      }
      if (overlap_elements(*sorted[i], *sorted[j]) != 0) return false;
    }
  }
  return true;
}

}  // namespace weft
