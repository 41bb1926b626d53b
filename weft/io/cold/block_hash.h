// The checksum of the cold tier: XXH3-64, with the widest vectors of the processor.
#pragma once

#include <cstdint>

namespace weft {

uint64_t block_hash(const void* data, int64_t bytes);

}  // namespace weft
