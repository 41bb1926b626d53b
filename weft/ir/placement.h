// Where the pieces of a logical value are on a device mesh: per dim the axes that cut it, the axes
// over which it is a partial result, and optionally a cut of the flattened local piece. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/shape.h"

namespace weft {

/// Index of a mesh axis (shard/mesh.h).
using AxisId = int;

/// How partial results combine.
enum class Reduction : uint8_t { sum, logsumexp };

/// A contiguous range along a dim.
struct CutPiece {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const CutPiece&) const = default;
};

/// Piece `index` of an extent cut into `ways` pieces of whole blocks; sizes differ by at most one
/// block and larger pieces come first. `extent` is a multiple of `block`. Pieces may be empty.
CutPiece cut_piece(int64_t extent, int64_t block, int64_t ways, int64_t index);

struct DimCut {
  std::vector<AxisId> axes;  // from major to minor; empty = whole
  int64_t block = 1;         // elements that stay together, for example those of one head
  bool operator==(const DimCut&) const = default;
};

struct Placement {
  std::vector<DimCut> dims;  // one per dim of the value
  /// The row-major flattening of the local piece is cut over these axes; the local value then has
  /// one dim. Used by ZeRO for states and gradients.
  std::vector<AxisId> flat;
  uint32_t partial = 0;  // bit per axis: each rank holds a part of the result
  Reduction reduction = Reduction::sum;

  bool is_partial(AxisId axis) const { return (partial >> axis & 1U) != 0; }
  /// Does the axis cut a dim or the flattening?
  bool cuts(AxisId axis) const;
  bool operator==(const Placement&) const = default;
};

/// Every rank has all of it.
Placement whole_placement(size_t rank);

}  // namespace weft
