// Random meshes and placements, and what a rank holds under them, element by element.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "weft/base/rng.h"
#include "weft/shard/mesh.h"
#include "weft/shard/pieces.h"

namespace weft {

/// A seeded sequence of draws.
class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_(seed) {}
  int64_t below(int64_t end) {
    return static_cast<int64_t>(stream_.below(next_++, static_cast<uint64_t>(end)));
  }
  bool chance(int64_t one_in) { return below(one_in) == 0; }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  RngStream stream_;
  uint64_t next_ = 0;
};

/// 1 to 3 axes of size 1 to 4, at most 16 ranks.
inline Mesh random_mesh(Draws& draws) {
  for (;;) {
    std::vector<MeshAxis> axes;
    int64_t world = 1;
    const int64_t count = 1 + draws.below(3);
    for (int64_t i = 0; i < count; ++i) {
      axes.push_back({std::string(1, static_cast<char>('x' + i)), 1 + draws.below(4)});
      world *= axes.back().size;
    }
    if (world <= 16) return Mesh(axes);
  }
}

inline Shape random_shape(Draws& draws) {
  static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
  Shape shape;
  const int64_t rank = 1 + draws.below(3);
  for (int64_t i = 0; i < rank; ++i) shape.push_back(kExtents[draws.below(10)]);
  return shape;
}

/// Every axis cuts a dim or the flattening, or nothing. Axes in `partial` are left alone.
inline Placement random_cuts(Draws& draws, const Shape& shape, const Mesh& mesh, uint32_t partial) {
  Placement placement = whole_placement(shape.size());
  std::vector<AxisId> axes;
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) axes.push_back(axis);
  draws.shuffle(axes);
  for (const AxisId axis : axes) {
    if ((partial >> axis & 1U) != 0) continue;
    const auto dims = static_cast<int64_t>(shape.size());
    const int64_t where = draws.below(dims + 2);
    if (where < dims) placement.dims[static_cast<size_t>(where)].axes.push_back(axis);
    if (where == dims) placement.flat.push_back(axis);
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (placement.dims[i].axes.empty()) continue;
    std::vector<int64_t> blocks;
    for (int64_t block = 1; block <= shape[i]; ++block) {
      if (shape[i] % block == 0) blocks.push_back(block);
    }
    placement.dims[i].block =
        blocks[static_cast<size_t>(draws.below(static_cast<int64_t>(blocks.size())))];
  }
  return placement;
}

/// Row-major indices in the logical value of what `rank` holds, in its own order.
inline std::vector<int64_t> held_elements(const Shape& shape, const Placement& placement,
                                          const Mesh& mesh, int64_t rank) {
  const std::vector<CutPiece> box = local_box(shape, placement, mesh, rank);
  std::vector<int64_t> held = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t prefix : held) {
      for (int64_t i = 0; i < box[d].size; ++i) {
        next.push_back(prefix * shape[d] + box[d].begin + i);
      }
    }
    held = std::move(next);
  }
  const CutPiece flat = flat_piece(shape, placement, mesh, rank);
  return {held.begin() + flat.begin, held.begin() + flat.begin + flat.size};
}

}  // namespace weft
