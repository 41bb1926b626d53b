// Equality and hash of kernel descriptions, so that equal steps share one prepared kernel.
#pragma once

#include <cstddef>

#include "weft/ir/kernel.h"

namespace weft {

struct KernelSpecHash {
  size_t operator()(const KernelSpec& spec) const;
};
struct KernelSpecEqual {
  bool operator()(const KernelSpec& a, const KernelSpec& b) const;
};

}  // namespace weft
