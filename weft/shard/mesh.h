// The device mesh: named axes with sizes, and which rank sits where. Plain value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/placement.h"

namespace weft {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

class Mesh {
 public:
  /// Axes from the slowest to the fastest: ranks that differ in the last axis only are neighbours.
  explicit Mesh(std::vector<MeshAxis> axes = {});

  int64_t world() const { return world_; }
  int num_axes() const { return static_cast<int>(axes_.size()); }
  const std::string& name(AxisId axis) const { return axes_[static_cast<size_t>(axis)].name; }
  int64_t size(AxisId axis) const { return axes_[static_cast<size_t>(axis)].size; }
  /// -1 when there is no such axis.
  AxisId find(std::string_view name) const;
  /// The axes that cut the batch, from the slowest: data, and expert inside it.
  std::vector<AxisId> batch_axes() const;
  int64_t coord(int64_t rank, AxisId axis) const;
  /// Sorted ranks that differ from `rank` along `axis` only, with itself.
  std::vector<int32_t> group(int64_t rank, AxisId axis) const;

 private:
  int64_t stride(AxisId axis) const;

  std::vector<MeshAxis> axes_;
  int64_t world_ = 1;
};

}  // namespace weft
