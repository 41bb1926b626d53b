// The order of an epoch: a permutation of [0, size) computed element by element (a Feistel network
// walked until it lands inside), so that no array is needed at any size. Pure.
#pragma once

#include <cstdint>

#include "weft/base/rng.h"

namespace weft {

class Permutation {
 public:
  /// The permutation that belongs to `stream`; `size` >= 1.
  Permutation(const RngStream& stream, int64_t size);
  int64_t at(int64_t index) const;

 private:
  RngStream stream_;
  uint64_t size_;
  uint32_t half_bits_;
};

}  // namespace weft
