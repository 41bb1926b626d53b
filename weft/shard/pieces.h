// The piece of a placed value that one rank holds.
#pragma once

#include <string>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/shard/mesh.h"

namespace weft {

/// Ranges per dim of the piece of `rank`, before the flattening is cut.
std::vector<CutPiece> local_box(const Shape& shape, const Placement& placement, const Mesh& mesh,
                                int64_t rank);
/// Range of the flattened box that `rank` holds; all of it without a flat cut.
CutPiece flat_piece(const Shape& shape, const Placement& placement, const Mesh& mesh, int64_t rank);
/// Extents of what `rank` holds: one dim when the flattening is cut.
Shape local_shape(const Shape& shape, const Placement& placement, const Mesh& mesh, int64_t rank);
/// Range of a dim after the cuts of its first `count` axes.
CutPiece dim_piece(int64_t extent, const DimCut& cut, size_t count, const Mesh& mesh, int64_t rank);

/// The same placement in its only form: axes of size 1 leave, blocks that change no boundary are 1.
Placement canonical(Placement placement, const Shape& shape, const Mesh& mesh);

/// Average bytes per rank.
double local_bytes(const TensorType& type, const Placement& placement, const Mesh& mesh);

/// Equal for equal placements and for no others; short, for tables.
std::string placement_key(const Placement& placement);
/// "[data, op/64, .] flat(data) partial(op)".
std::string placement_text(const Placement& placement, const Mesh& mesh);

}  // namespace weft
