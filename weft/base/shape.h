// Tensor extents in elements, row-major (last dim contiguous).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

using Shape = std::vector<int64_t>;

/// Product of the extents; 1 for a scalar. Throws BugError on overflow or a negative extent.
int64_t num_elements(const Shape& shape);
/// "[2, 3]".
std::string shape_text(const Shape& shape);
/// Product of all extents but the last; 1 for rank 0 and 1.
int64_t num_rows(const Shape& shape);

}  // namespace weft
