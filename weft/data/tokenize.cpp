#include "weft/data/tokenize.h"

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/data/data_files.h"
#include "weft/data/source.h"
#include "weft/data/token_file.h"

namespace weft {

SourceCounts tokenize_files(const std::vector<std::string>& inputs, const Tokenizer& tokenizer,
                            bool allow_special, const std::string& prefix,
                            const TokenizeProgress& progress) {
  FilePool pool;
  std::vector<DataFile> files;
  int64_t total = 0;
  for (const std::string& input : inputs) {
    for (DataFile& file : find_data_files(input)) {
      if (file.kind == DataFileKind::tokens) {
        throw InputError(file.path, "got a token file, expected .txt or .jsonl text");
      }
      total += pool.size(file.path);
      files.push_back(std::move(file));
    }
  }
  TokenFileWriter writer(prefix, tokenizer.vocab_size());
  int64_t skipped = 0;
  int64_t done = 0;
  for (const DataFile& file : files) {
    int64_t in_file = 0;  // an estimate: the text without what JSON puts around it
    skipped +=
        read_documents(file, pool, tokenizer, allow_special, 0, [&](const Document& document) {
          if (document.is_row) {
            throw InputError(file.path,
                             "got rows with input_ids, expected \"text\"; try training "
                             "on the .jsonl file itself, it has its ids already");
          }
          writer.add_document(document.ids);
          in_file += document.source_bytes;
          if (progress) progress(done + in_file, total);
        });
    done += pool.size(file.path);
    if (progress) progress(done, total);
  }
  if (writer.num_documents() == 0) {
    throw InputError(inputs.empty() ? "tokenize" : inputs.front(),
                     fmt::format("got no document that is not empty ({} empty ones), expected at "
                                 "least one",
                                 skipped));
  }
  writer.finish();
  return {writer.num_documents(), writer.num_tokens(), skipped};
}

}  // namespace weft
