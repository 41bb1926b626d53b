// Rows are either refused with an InputError or have ids and labels inside their limits.
#include "memory_source.h"
#include "weft/base/check.h"
#include "weft/data/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::MemorySource source(data, size);
  int64_t last = 0;
  try {
    weft::read_jsonl(source, {100, 8}, [&](weft::JsonlRow& row) {
      WEFT_CHECK(row.number > last, "fuzz_jsonl", "row {} after {}", row.number, last);
      last = row.number;
      if (row.is_text) {
        WEFT_CHECK(!weft::is_blank(row.text), "fuzz_jsonl", "blank text");
        return;
      }
      const size_t ids = row.input_ids.size();
      WEFT_CHECK(ids > 0 && ids <= 8 && row.labels.size() == ids, "fuzz_jsonl", "bad size");
      for (const int32_t id : row.input_ids) {
        WEFT_CHECK(id >= 0 && id < 100, "fuzz_jsonl", "id {}", id);
      }
      for (const int32_t label : row.labels) {
        WEFT_CHECK(label == -100 || (label >= 0 && label < 100), "fuzz_jsonl", "label {}", label);
      }
    });
  } catch (const weft::InputError&) {
  }
  return 0;
}
