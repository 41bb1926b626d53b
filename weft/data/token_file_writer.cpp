#include <cstring>
#include <limits>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/data/token_file.h"

namespace weft {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int64_t kMaxNarrowVocabulary = 65536;
constexpr const char* kPartSuffix = ".part";

template <class T>
void append(std::vector<unsigned char>& bytes, T value) {
  const size_t end = bytes.size();
  bytes.resize(end + sizeof value);
  std::memcpy(bytes.data() + end, &value, sizeof value);
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& prefix, int64_t vocab_size)
    : prefix_(prefix), vocab_size_(vocab_size), wide_(vocab_size > kMaxNarrowVocabulary) {
  bin_ =
      std::make_unique<File>(posix_files().open(prefix_ + ".bin" + kPartSuffix, OpenMode::create));
}

TokenFileWriter::~TokenFileWriter() {
  if (finished_) return;
  try {
    bin_.reset();
    posix_files().remove(prefix_ + ".bin" + kPartSuffix);
  } catch (const Error&) {
    // The cause of the failure is already on its way to the user; a leftover .part file is
    // harmless.
  }
}

void TokenFileWriter::flush() {
  bin_->write_at(written_, buffer_.data(), static_cast<int64_t>(buffer_.size()));
  written_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void TokenFileWriter::add_document(std::span<const int32_t> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError(prefix_, "got a document of 2^31 tokens or more; try splitting it");
  }
  for (const int32_t id : ids) {
    WEFT_CHECK(id >= 0 && id < vocab_size_, "TokenFileWriter", "got id {} for a vocabulary of {}",
               id, vocab_size_);
    if (wide_) {
      append(buffer_, id);
    } else {
      append(buffer_, static_cast<uint16_t>(id));
    }
    if (buffer_.size() >= kBufferBytes) flush();
  }
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  tokens_ += static_cast<int64_t>(ids.size());
}

void TokenFileWriter::finish() {
  flush();
  bin_->sync();
  bin_->close();
  FileSystem& files = posix_files();
  const std::string index_part = prefix_ + ".idx" + kPartSuffix;
  File index = files.open(index_part, OpenMode::create);
  std::vector<unsigned char> bytes;
  int64_t at = 0;
  const auto flush_index = [&](size_t threshold) {
    if (bytes.size() < threshold) return;
    index.write_at(at, bytes.data(), static_cast<int64_t>(bytes.size()));
    at += static_cast<int64_t>(bytes.size());
    bytes.clear();
  };
  const uint64_t count = lengths_.size();
  for (const char c : std::string_view("MMIDIDX\0\0", 9)) append(bytes, c);
  append(bytes, uint64_t{1});
  append(bytes, static_cast<uint8_t>(wide_ ? 4 : 8));
  append(bytes, count);
  append(bytes, count + 1);
  for (const int32_t length : lengths_) {
    append(bytes, length);
    flush_index(kBufferBytes);
  }
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    append(bytes, offset);
    offset += length * int64_t{wide_ ? 4 : 2};
    flush_index(kBufferBytes);
  }
  for (uint64_t document = 0; document <= count; ++document) {
    append(bytes, document);
    flush_index(kBufferBytes);
  }
  flush_index(0);
  index.sync();
  index.close();
  // The index comes last: a reader that finds it also finds all tokens.
  files.rename(prefix_ + ".bin" + kPartSuffix, prefix_ + ".bin");
  files.rename(index_part, prefix_ + ".idx");
  finished_ = true;
}

}  // namespace weft
