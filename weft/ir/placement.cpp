#include "weft/ir/placement.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

CutPiece cut_piece(int64_t extent, int64_t block, int64_t ways, int64_t index) {
  WEFT_CHECK(block > 0 && ways > 0 && index >= 0 && index < ways && extent % block == 0,
             "cut_piece", "got extent {}, block {}, piece {} of {}", extent, block, index, ways);
  const int64_t units = extent / block;
  const int64_t base = units / ways;
  const int64_t larger = units % ways;
  const int64_t begin = index * base + std::min(index, larger);
  const int64_t size = base + (index < larger ? 1 : 0);
  return {begin * block, size * block};
}

bool Placement::cuts(AxisId axis) const {
  const auto has = [axis](const std::vector<AxisId>& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  return has(flat) ||
         std::any_of(dims.begin(), dims.end(), [&](const DimCut& dim) { return has(dim.axes); });
}

Placement whole_placement(size_t rank) {
  Placement placement;
  placement.dims.resize(rank);
  return placement;
}

}  // namespace weft
