// One source of samples: a stream of tokens and the rows of .jsonl files. Filled once, then
// immutable; const calls may run from several threads. Internal to weft/data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/data/data_files.h"
#include "weft/data/dataset.h"
#include "weft/data/token_file.h"

namespace weft {

/// Ids in as few bytes as the vocabulary allows.
class IdList {
 public:
  explicit IdList(int64_t vocab_size) : wide_(vocab_size > 65536) {}
  void append(std::span<const int32_t> ids);
  int64_t size() const { return static_cast<int64_t>(wide_ ? ids32_.size() : ids16_.size()); }
  void read(int64_t first, int64_t count, int32_t* out) const;

 private:
  bool wide_;
  std::vector<uint16_t> ids16_;
  std::vector<int32_t> ids32_;
};

/// What a text or row file holds, document by document.
struct Document {
  bool is_row = false;
  std::span<const int32_t> ids;     // text: with the end-of-document id
  std::span<const int32_t> labels;  // rows only
  int64_t source_bytes = 0;         // of the text
};

/// Calls `document` for every document of a .txt or .jsonl file; returns how many were empty.
/// `max_row` is the longest row allowed, 0 for any.
int64_t read_documents(const DataFile& file, FilePool& pool, const Tokenizer& tokenizer,
                       bool allow_special, int64_t max_row,
                       const std::function<void(const Document&)>& document);

class Source {
 public:
  Source(const SampleOptions& options, const Tokenizer& tokenizer, bool allow_special,
         std::shared_ptr<FilePool> pool);

  void add(const DataFile& file);

  int64_t num_samples() const { return stream_samples() + static_cast<int64_t>(rows_.size()); }
  const SourceCounts& counts() const { return counts_; }
  void read_sample(int64_t index, const SampleView& out) const;

 private:
  /// Tokens [begin, next begin) of the stream come from a token file or from texts_ at `offset`.
  struct Segment {
    int64_t begin = 0;
    int64_t offset = 0;
    std::shared_ptr<const TokenFile> file;
  };
  struct Row {
    int64_t begin = 0;  // in row_ids_ and row_labels_
    int64_t size = 0;
  };

  int64_t stream_samples() const {
    return stream_tokens_ == 0 ? 0 : (stream_tokens_ - 1) / options_.seq_len;
  }
  void read_stream(int64_t first, int64_t count, int32_t* out) const;
  void fill(int64_t length, const SampleView& out) const;

  SampleOptions options_;
  const Tokenizer& tokenizer_;  // used while files are added
  bool allow_special_;
  std::shared_ptr<FilePool> pool_;
  std::vector<Segment> segments_;
  IdList texts_;
  int64_t stream_tokens_ = 0;
  std::vector<Row> rows_;
  IdList row_ids_;
  std::vector<int32_t> row_labels_;
  SourceCounts counts_;
};

}  // namespace weft
