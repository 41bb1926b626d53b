// A tokenizer.json is either refused with an InputError or encodes and decodes awkward text.
#include <string_view>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = weft::parse_tokenizer_json(json, "fuzz");
    for (const std::string_view text :
         {"abab aab12  \n\t", "<|endoftext|>", "\xff\xc3\xa4\xe6\xb1\x89 \xf0\x9f\x91\x8d\x80"}) {
      for (const bool allow_special : {false, true}) {
        std::vector<int32_t> ids;
        tokenizer->encode(text, allow_special, ids);
        for (const int32_t id : ids) {
          WEFT_CHECK(id >= 0 && id < tokenizer->vocab_size(), "fuzz_tokenizer_json", "id {}", id);
          WEFT_CHECK(allow_special || id != tokenizer->eod_id(), "fuzz_tokenizer_json",
                     "plain text gave the end of documents");
        }
        tokenizer->decode(ids);
      }
    }
  } catch (const weft::InputError&) {
  }
  return 0;
}
