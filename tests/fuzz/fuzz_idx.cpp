// A token file index is either refused with an InputError or consistent.
#include "memory_source.h"
#include "weft/base/check.h"
#include "weft/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::MemorySource source(data, size);
  try {
    const weft::TokenIndex index = weft::check_token_index(source);
    WEFT_CHECK(index.documents_offset() + 8 * (index.documents + 1) == source.size(), "fuzz_idx",
               "accepted an index of another size");
    WEFT_CHECK(index.tokens >= 0 && index.item_size > 0, "fuzz_idx", "accepted bad counts");
  } catch (const weft::InputError&) {
  }
  return 0;
}
