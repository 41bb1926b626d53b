// Text files to a Megatron token file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/data/dataset.h"
#include "weft/data/tokenizer.h"

namespace weft {

/// Called now and then with the input bytes done, of `total`.
using TokenizeProgress = std::function<void(int64_t done, int64_t total)>;

/// Writes PREFIX.bin and PREFIX.idx: one sequence per document of `inputs` (.txt, .jsonl with
/// "text", folders, globs), each followed by the end-of-document id. Empty documents are skipped
/// and counted. Throws InputError for bad input or when there is no document at all; then nothing
/// is written.
SourceCounts tokenize_files(const std::vector<std::string>& inputs, const Tokenizer& tokenizer,
                            bool allow_special, const std::string& prefix,
                            const TokenizeProgress& progress = {});

}  // namespace weft
