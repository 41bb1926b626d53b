// What `weft inspect` asks about a data set.
#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/data/data_files.h"
#include "weft/data/dataset.h"
#include "weft/data/source.h"

namespace weft {

bool is_dataset_path(const std::string& path) {
  DataFile file;
  return identify_data_file(path, &file);
}

DatasetSummary summarize_dataset(const std::string& path, const Tokenizer& tokenizer) {
  const auto pool = std::make_shared<FilePool>();
  DatasetSummary summary;
  const auto merge_dtype = [&](const std::string& dtype) {
    summary.dtype = summary.dtype.empty() || summary.dtype == dtype ? dtype : "mixed";
  };
  for (const DataFile& file : find_data_files(path)) {
    if (file.kind == DataFileKind::tokens) {
      const TokenFile tokens(file.path, pool, 0);
      summary.documents += tokens.num_documents();
      summary.tokens += tokens.num_tokens();
      summary.max_id = std::max(summary.max_id, tokens.max_id());
      merge_dtype(tokens.dtype());
      continue;
    }
    merge_dtype(tokenizer.vocab_size() > 65536 ? "i32" : "u16");
    summary.skipped +=
        read_documents(file, *pool, tokenizer, false, 0, [&](const Document& document) {
          ++summary.documents;
          summary.tokens += static_cast<int64_t>(document.ids.size());
          for (const int32_t id : document.ids) {
            summary.max_id = std::max<int64_t>(summary.max_id, id);
          }
        });
  }
  return summary;
}

std::vector<int32_t> dataset_document(const std::string& path, const Tokenizer& tokenizer,
                                      int64_t number) {
  const auto pool = std::make_shared<FilePool>();
  int64_t documents = 0;
  std::vector<int32_t> ids;
  for (const DataFile& file : find_data_files(path)) {
    if (file.kind == DataFileKind::tokens) {
      const TokenFile tokens(file.path, pool, 0);
      if (number >= documents && number < documents + tokens.num_documents()) {
        return tokens.document(number - documents);
      }
      documents += tokens.num_documents();
      continue;
    }
    read_documents(file, *pool, tokenizer, false, 0, [&](const Document& document) {
      if (documents++ == number) ids.assign(document.ids.begin(), document.ids.end());
    });
    if (number >= 0 && number < documents) return ids;
  }
  throw UsageError("--document",
                   fmt::format("got document {}, expected 0 to {}", number, documents - 1));
}

}  // namespace weft
