#include "weft/shard/pieces.h"

#include <fmt/core.h>

#include "weft/base/check.h"

namespace weft {

CutPiece dim_piece(int64_t extent, const DimCut& cut, size_t count, const Mesh& mesh,
                   int64_t rank) {
  CutPiece piece{0, extent};
  for (size_t i = 0; i < count; ++i) {
    const AxisId axis = cut.axes[i];
    const CutPiece inner =
        cut_piece(piece.size, cut.block, mesh.size(axis), mesh.coord(rank, axis));
    piece = {piece.begin + inner.begin, inner.size};
  }
  return piece;
}

std::vector<CutPiece> local_box(const Shape& shape, const Placement& placement, const Mesh& mesh,
                                int64_t rank) {
  WEFT_CHECK(placement.dims.size() == shape.size(), "shard", "placement of {} dims for shape {}",
             placement.dims.size(), shape_text(shape));
  std::vector<CutPiece> box;
  for (size_t i = 0; i < shape.size(); ++i) {
    const DimCut& cut = placement.dims[i];
    box.push_back(dim_piece(shape[i], cut, cut.axes.size(), mesh, rank));
  }
  return box;
}

CutPiece flat_piece(const Shape& shape, const Placement& placement, const Mesh& mesh,
                    int64_t rank) {
  int64_t elements = 1;
  for (const CutPiece& piece : local_box(shape, placement, mesh, rank)) elements *= piece.size;
  return dim_piece(elements, {placement.flat, 1}, placement.flat.size(), mesh, rank);
}

Shape local_shape(const Shape& shape, const Placement& placement, const Mesh& mesh, int64_t rank) {
  if (!placement.flat.empty()) return {flat_piece(shape, placement, mesh, rank).size};
  Shape local;
  for (const CutPiece& piece : local_box(shape, placement, mesh, rank)) local.push_back(piece.size);
  return local;
}

Placement canonical(Placement placement, const Shape& shape, const Mesh& mesh) {
  const auto drop_single = [&](std::vector<AxisId>& axes) {
    std::erase_if(axes, [&](AxisId axis) { return mesh.size(axis) == 1; });
  };
  drop_single(placement.flat);
  for (size_t i = 0; i < placement.dims.size(); ++i) {
    DimCut& cut = placement.dims[i];
    drop_single(cut.axes);
    int64_t ways = 1;
    for (const AxisId axis : cut.axes) ways *= mesh.size(axis);
    if (ways == 1 || shape[i] % (cut.block * ways) == 0) cut.block = 1;
  }
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) placement.partial &= ~(1U << axis);
  }
  if (placement.partial == 0) placement.reduction = Reduction::sum;
  return placement;
}

double local_bytes(const TensorType& type, const Placement& placement, const Mesh& mesh) {
  double bytes = static_cast<double>(type.bytes());
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (placement.cuts(axis)) bytes /= static_cast<double>(mesh.size(axis));
  }
  return bytes;
}

std::string placement_key(const Placement& placement) {
  std::string key;
  for (const DimCut& cut : placement.dims) {
    for (const AxisId axis : cut.axes) key += static_cast<char>('a' + axis);
    key += fmt::format("/{},", cut.axes.empty() ? 0 : cut.block);
  }
  key += '|';
  for (const AxisId axis : placement.flat) key += static_cast<char>('a' + axis);
  return key + fmt::format("|{}|{}", placement.partial, static_cast<int>(placement.reduction));
}

std::string placement_text(const Placement& placement, const Mesh& mesh) {
  const auto join = [&](const std::vector<AxisId>& axes) {
    std::string text;
    for (const AxisId axis : axes) text += (text.empty() ? "" : "+") + mesh.name(axis);
    return text;
  };
  std::string text = "[";
  for (size_t i = 0; i < placement.dims.size(); ++i) {
    const DimCut& cut = placement.dims[i];
    if (i > 0) text += ", ";
    text += cut.axes.empty() ? "." : join(cut.axes);
    if (cut.block > 1) text += fmt::format("/{}", cut.block);
  }
  text += "]";
  if (!placement.flat.empty()) text += fmt::format(" flat({})", join(placement.flat));
  std::vector<AxisId> partial;
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (placement.is_partial(axis)) partial.push_back(axis);
  }
  if (!partial.empty()) {
    text += fmt::format(" {}({})", placement.reduction == Reduction::sum ? "partial" : "logsumexp",
                        join(partial));
  }
  return text;
}

}  // namespace weft
