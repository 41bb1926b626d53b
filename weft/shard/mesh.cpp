#include "weft/shard/mesh.h"

#include "weft/base/check.h"

namespace weft {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (const MeshAxis& axis : axes_) {
    WEFT_CHECK(axis.size > 0, "mesh", "axis {} has size {}", axis.name, axis.size);
    world_ *= axis.size;
  }
}

AxisId Mesh::find(std::string_view name) const {
  for (AxisId i = 0; i < num_axes(); ++i) {
    if (axes_[static_cast<size_t>(i)].name == name) return i;
  }
  return -1;
}

std::vector<AxisId> Mesh::batch_axes() const {
  std::vector<AxisId> axes;
  for (const std::string_view name : {"data", "expert"}) {
    if (find(name) >= 0) axes.push_back(find(name));
  }
  return axes;
}

int64_t Mesh::stride(AxisId axis) const {
  int64_t stride = 1;
  for (AxisId i = axis + 1; i < num_axes(); ++i) stride *= size(i);
  return stride;
}

int64_t Mesh::coord(int64_t rank, AxisId axis) const {
  WEFT_CHECK(rank >= 0 && rank < world_, "mesh", "got rank {} of {}", rank, world_);
  return rank / stride(axis) % size(axis);
}

std::vector<int32_t> Mesh::group(int64_t rank, AxisId axis) const {
  const int64_t first = rank - coord(rank, axis) * stride(axis);
  std::vector<int32_t> ranks;
  for (int64_t i = 0; i < size(axis); ++i) {
    ranks.push_back(static_cast<int32_t>(first + i * stride(axis)));
  }
  return ranks;
}

}  // namespace weft
