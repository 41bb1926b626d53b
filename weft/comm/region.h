// Regions: the parts of contiguous tensors that collectives move, as nested loops over runs of
// elements that lie together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/ops/collective.h"

namespace weft {

struct Region {
  int64_t offset = 0;                     // of the first element, in elements
  std::array<int64_t, 3> count{1, 1, 1};  // loops around the run, outermost first
  std::array<int64_t, 3> stride{0, 0, 0};
  int64_t run = 0;  // contiguous elements

  int64_t elements() const { return count[0] * count[1] * count[2] * run; }
  bool contiguous() const { return count[0] * count[1] * count[2] == 1; }
};

/// [before, x of x_extent, between, y of y_extent, behind] of a contiguous tensor; loops over
/// adjacent elements are merged into the run.
Region block_region(int64_t before, int64_t x_extent, CutPiece x, int64_t between, int64_t y_extent,
                    CutPiece y, int64_t behind);

/// The part of the whole tensor that is the piece of `member`.
Region piece_region(const CollectiveView& view, int member);
/// `elements` that lie together.
Region flat_region(int64_t offset, int64_t elements);

/// all_to_all: the part of the input of `from` that goes to `to`, and where it lies in the output
/// of `to`. Both regions list the elements in the same order.
Region exchange_source(const CollectiveTensor& tensor, int from, int to);
Region exchange_target(const CollectiveTensor& tensor, int from, int to);

/// Walks the elements of a region in order.
class RegionCursor {
 public:
  /// Starts at element `position` of the region.
  explicit RegionCursor(const Region& region, int64_t position = 0);
  /// Where the current element is in the tensor.
  int64_t offset() const { return offset_; }
  /// Elements from the current one that lie together.
  int64_t left() const { return left_; }
  /// Moves on by count <= left().
  void advance(int64_t count);

 private:
  Region region_;
  std::array<int64_t, 3> at_{};
  int64_t offset_ = 0;
  int64_t left_ = 0;
};

/// Copies the elements of `from` to the places of `to`, in order; both have as many elements.
void copy_region(const Region& from, const std::byte* source, const Region& to, std::byte* target,
                 int64_t element_bytes);

}  // namespace weft
