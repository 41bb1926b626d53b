// Boxes of a row-major tensor: a begin and an extent per dim.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/shape.h"

namespace weft {

struct Box {
  Shape begin;
  Shape extent;
};

/// Elements in both boxes; the ranks must agree.
int64_t overlap_elements(const Box& a, const Box& b);
/// Copies the elements that both boxes hold from `source`, the packed content of `from`, to
/// `target`, the packed content of `to`. Returns their number.
int64_t copy_overlap(const Box& from, const void* source, const Box& to, void* target,
                     int64_t element_bytes);
/// Elements [begin, begin + count) of the row-major flattening of `box` as boxes of the same
/// tensor, in order: each is one run of that flattening, and there are at most max(1, 2 rank - 1).
std::vector<Box> flat_boxes(const Box& box, int64_t begin, int64_t count);
/// copy_overlap whose source holds only elements [begin, begin + count) of the flattening of
/// `from`.
int64_t copy_range(const Box& from, int64_t begin, int64_t count, const void* source, const Box& to,
                   void* target, int64_t element_bytes);
/// Are the boxes inside `shape`, disjoint, and is nothing of it left out?
bool boxes_cover(const std::vector<const Box*>& boxes, const Shape& shape);

}  // namespace weft
