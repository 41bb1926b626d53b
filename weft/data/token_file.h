// Megatron token files: PREFIX.idx (MMIDIDX index) and PREFIX.bin (raw little-endian ids), see
// docs/formats/tokens.md. The reader keeps neither file mapped nor its index in memory: it checks
// the whole index once and then reads pieces through a FilePool, so a file that shrinks or goes
// away during a run is an InputError with its name. Const calls may run from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/data/file_pool.h"
#include "weft/io/file.h"

namespace weft {

/// What an .idx file says, after every field was checked against the others.
struct TokenIndex {
  std::string dtype;  // u8, i8, i16, u16, i32, i64
  int64_t item_size = 0;
  int64_t sequences = 0;
  int64_t documents = 0;
  int64_t tokens = 0;

  int64_t lengths_offset() const { return 34; }
  int64_t offsets_offset() const { return 34 + 4 * sequences; }
  int64_t documents_offset() const { return 34 + 12 * sequences; }
};

/// Reads and checks an index: magic, version, dtype, exact file size, lengths >= 0, offsets without
/// gaps, document starts ascending from 0 to the number of sequences. Throws InputError.
TokenIndex check_token_index(const ByteSource& index);

class TokenFile {
 public:
  /// `prefix` may also name the .bin or .idx file. Ids read are checked against `vocab_size` (0:
  /// only against 32 bits). Throws InputError when a file is missing or contradicts itself.
  TokenFile(const std::string& prefix, std::shared_ptr<FilePool> pool, int64_t vocab_size);

  const std::string& prefix() const { return prefix_; }
  int64_t num_documents() const { return index_.documents; }
  int64_t num_tokens() const { return index_.tokens; }
  /// "u16", "i32", …
  const std::string& dtype() const { return index_.dtype; }

  /// Tokens [first, first + count) of the file. Throws InputError naming file, document and
  /// position for an id that the vocabulary does not have.
  void read(int64_t first, int64_t count, int32_t* ids) const;
  /// First token of a document, counted from 0; num_tokens() for num_documents().
  int64_t document_begin(int64_t document) const;
  std::vector<int32_t> document(int64_t document) const;
  /// Greatest id; reads the whole file. -1 when it is empty.
  int64_t max_id() const;

 private:
  std::string prefix_, bin_path_, idx_path_;
  std::shared_ptr<FilePool> pool_;
  int64_t vocab_size_;
  TokenIndex index_;
};

/// Writes PREFIX.bin and PREFIX.idx, one sequence per document: 16-bit unsigned ids for
/// vocabularies up to 65536, else signed 32 bit. Both files appear under their names only when
/// finish() succeeded; an unfinished writer removes what it wrote.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& prefix, int64_t vocab_size);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Throws BugError for an id outside the vocabulary, ResourceError when the disk is full.
  void add_document(std::span<const int32_t> ids);
  void finish();
  int64_t num_documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_tokens() const { return tokens_; }

 private:
  void flush();

  std::string prefix_;
  int64_t vocab_size_;
  bool wide_;
  bool finished_ = false;
  int64_t tokens_ = 0;
  std::vector<int32_t> lengths_;
  std::unique_ptr<File> bin_;
  int64_t written_ = 0;
  std::vector<unsigned char> buffer_;
};

}  // namespace weft
