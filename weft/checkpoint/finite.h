// Search for values that are not finite.
#pragma once

#include <cstdint>
#include <string>

#include "weft/base/dtype.h"

namespace weft {

/// Index of the first NaN or infinity, or -1. Integer dtypes have none. Reads at memory speed.
int64_t find_nonfinite(const void* data, DType dtype, int64_t count);
/// "nan", "inf" or "-inf" of such an element.
std::string nonfinite_text(const void* data, DType dtype, int64_t index);

}  // namespace weft
