#include "weft/io/cold/block_hash.h"

// xxhash of x86 brings one version per instruction set and chooses at run time; elsewhere the
// compiler's target decides. CMakeLists.txt looks which one is installed.
#if WEFT_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace weft {

uint64_t block_hash(const void* data, int64_t bytes) {
#if WEFT_XXHASH_DISPATCH
  return XXH3_64bits_dispatch(data, static_cast<size_t>(bytes));
#else
  return XXH3_64bits(data, static_cast<size_t>(bytes));
#endif
}

}  // namespace weft
