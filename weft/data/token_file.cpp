#include "weft/data/token_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "weft/base/check.h"
#include "weft/base/error.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kHeaderBytes = 34;
constexpr int64_t kPieceBytes = 1 << 18;

struct DTypeCode {
  uint8_t code;
  const char* name;
  int64_t size;
  bool integer;
};
constexpr std::array<DTypeCode, 8> kDTypes = {{{1, "u8", 1, true},
                                               {2, "i8", 1, true},
                                               {3, "i16", 2, true},
                                               {4, "i32", 4, true},
                                               {5, "i64", 8, true},
                                               {6, "f64", 8, false},
                                               {7, "f32", 4, false},
                                               {8, "u16", 2, true}}};

template <class T>
T load(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Calls visit(index, value) for `count` values of type T stored from `offset` on.
template <class T, class Visit>
void for_each_value(const ByteSource& source, int64_t offset, int64_t count, Visit visit) {
  constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
  std::vector<unsigned char> buffer;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t piece = std::min(kPiece, count - begin);
    buffer.resize(static_cast<size_t>(piece) * sizeof(T));
    source.read(offset + begin * static_cast<int64_t>(sizeof(T)), buffer.data(),
                static_cast<int64_t>(buffer.size()));
    for (int64_t i = 0; i < piece; ++i) visit(begin + i, load<T>(buffer.data() + i * sizeof(T)));
  }
}

TokenIndex check_header(const ByteSource& index) {
  const std::string& name = index.name();
  if (index.size() < kHeaderBytes) {
    throw InputError(name, fmt::format("got {} bytes, expected at least the {} bytes of an index "
                                       "header; try writing the token file again",
                                       index.size(), kHeaderBytes));
  }
  unsigned char header[kHeaderBytes];
  index.read(0, header, kHeaderBytes);
  if (std::memcmp(header, kMagic, sizeof kMagic) != 0) {
    throw InputError(name, "got other leading bytes, expected \"MMIDIDX\"; try a token file index");
  }
  const auto version = load<uint64_t>(header + 9);
  if (version != 1) {
    throw InputError(name, fmt::format("got index version {}, expected 1", version));
  }
  const uint8_t code = header[17];
  const auto* dtype = std::find_if(kDTypes.begin(), kDTypes.end(),
                                   [&](const DTypeCode& entry) { return entry.code == code; });
  if (dtype == kDTypes.end() || !dtype->integer) {
    throw InputError(name, fmt::format("got token type {} (code {}), expected an integer type; try "
                                       "tokenizing again",
                                       dtype == kDTypes.end() ? "unknown" : dtype->name, code));
  }
  const auto sequences = load<uint64_t>(header + 18);
  const auto entries = load<uint64_t>(header + 26);
  const auto room = static_cast<uint64_t>(index.size() - kHeaderBytes);
  if (sequences > room / 12 || entries > room / 8) {
    throw InputError(name, fmt::format("got {} sequences and {} document starts, expected at most "
                                       "what {} bytes can hold",
                                       sequences, entries, index.size()));
  }
  if (entries == 0) {
    throw InputError(name, "got no document starts, expected at least the closing one");
  }
  const uint64_t expected = 12 * sequences + 8 * entries;
  if (room == expected + sequences && sequences > 0) {
    throw InputError(name, "got a multimodal index with a mode per sequence, expected plain text");
  }
  if (room != expected) {
    throw InputError(name, fmt::format("got {} bytes, expected {} for {} sequences and {} document "
                                       "starts",
                                       index.size(), kHeaderBytes + expected, sequences, entries));
  }
  TokenIndex result;
  result.dtype = dtype->name;
  result.item_size = dtype->size;
  result.sequences = static_cast<int64_t>(sequences);
  result.documents = static_cast<int64_t>(entries) - 1;
  return result;
}

std::string strip_suffix(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".idx")) return path.substr(0, path.size() - 4);
  return path;
}

template <class T>
void widen(const unsigned char* bytes, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = load<T>(bytes + i * sizeof(T));
}

void widen_tokens(const std::string& dtype, const unsigned char* bytes, int64_t count,
                  int64_t* out) {
  if (dtype == "u8") return widen<uint8_t>(bytes, count, out);
  if (dtype == "i8") return widen<int8_t>(bytes, count, out);
  if (dtype == "i16") return widen<int16_t>(bytes, count, out);
  if (dtype == "u16") return widen<uint16_t>(bytes, count, out);
  if (dtype == "i32") return widen<int32_t>(bytes, count, out);
  widen<int64_t>(bytes, count, out);
}

}  // namespace

TokenIndex check_token_index(const ByteSource& index) {
  TokenIndex result = check_header(index);
  const std::string& name = index.name();
  std::vector<int64_t> begins;  // expected offsets of one piece of sequences
  // Lengths and offsets are checked in step, piece by piece, so that memory stays bounded.
  constexpr int64_t kPiece = kPieceBytes / 8;
  const int64_t max_tokens = std::numeric_limits<int64_t>::max() / 16;
  for (int64_t begin = 0; begin < result.sequences; begin += kPiece) {
    const int64_t piece = std::min(kPiece, result.sequences - begin);
    begins.clear();
    for_each_value<int32_t>(
        index, result.lengths_offset() + 4 * begin, piece, [&](int64_t i, int32_t length) {
          if (length < 0 || result.tokens > max_tokens) {
            throw InputError(name, fmt::format("got length {} of sequence {}, expected 0 or more",
                                               length, begin + i));
          }
          begins.push_back(result.tokens * result.item_size);
          result.tokens += length;
        });
    for_each_value<int64_t>(
        index, result.offsets_offset() + 8 * begin, piece, [&](int64_t i, int64_t offset) {
          if (offset != begins[static_cast<size_t>(i)]) {
            throw InputError(name, fmt::format("got offset {} of sequence {}, expected {}", offset,
                                               begin + i, begins[static_cast<size_t>(i)]));
          }
        });
  }
  int64_t previous = 0;
  for_each_value<int64_t>(
      index, result.documents_offset(), result.documents + 1, [&](int64_t i, int64_t start) {
        const bool first_is_wrong = i == 0 && start != 0;
        const bool last_is_wrong = i == result.documents && start != result.sequences;
        if (first_is_wrong || last_is_wrong || start < previous || start > result.sequences) {
          throw InputError(name, fmt::format("got start {} of document {}, expected ascending "
                                             "starts from 0 to {}",
                                             start, i, result.sequences));
        }
        previous = start;
      });
  return result;
}

TokenFile::TokenFile(const std::string& prefix, std::shared_ptr<FilePool> pool, int64_t vocab_size)
    : prefix_(strip_suffix(prefix)),
      bin_path_(prefix_ + ".bin"),
      idx_path_(prefix_ + ".idx"),
      pool_(std::move(pool)),
      vocab_size_(vocab_size) {
  index_ = check_token_index(PooledFile(idx_path_, *pool_));
  const int64_t bytes = pool_->size(bin_path_);
  const int64_t expected = index_.tokens * index_.item_size;
  if (bytes != expected) {
    throw InputError(bin_path_, fmt::format("got {} bytes, expected {} ({} {} tokens of the "
                                            "index); try writing the token file again",
                                            bytes, expected, index_.tokens, index_.dtype));
  }
}

void TokenFile::read(int64_t first, int64_t count, int32_t* ids) const {
  WEFT_CHECK(first >= 0 && count >= 0 && first <= num_tokens() - count, "TokenFile::read",
             "got tokens [{}, {}) of {}", first, first + count, num_tokens());
  const int64_t limit =
      vocab_size_ > 0 ? vocab_size_ : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  const int64_t piece_tokens = kPieceBytes / index_.item_size;
  std::vector<unsigned char> bytes;
  std::vector<int64_t> wide;
  for (int64_t begin = 0; begin < count; begin += piece_tokens) {
    const int64_t piece = std::min(piece_tokens, count - begin);
    bytes.resize(static_cast<size_t>(piece * index_.item_size));
    wide.resize(static_cast<size_t>(piece));
    pool_->read(bin_path_, (first + begin) * index_.item_size, bytes.data(),
                static_cast<int64_t>(bytes.size()));
    widen_tokens(index_.dtype, bytes.data(), piece, wide.data());
    for (int64_t i = 0; i < piece; ++i) {
      const int64_t id = wide[static_cast<size_t>(i)];
      if (id < 0 || id >= limit) {
        const int64_t position = first + begin + i;
        // The document is the last one that begins at or before the position.
        int64_t low = 0;
        int64_t high = num_documents();
        while (high - low > 1) {
          const int64_t middle = low + (high - low) / 2;
          (document_begin(middle) <= position ? low : high) = middle;
        }
        throw InputError(
            bin_path_,
            fmt::format("got id {} in document {} at position {} (token {} of the file), expected "
                        "ids below the vocabulary size {}; try the tokenizer the file was made "
                        "with",
                        id, low, position - document_begin(low), position, limit));
      }
      ids[begin + i] = static_cast<int32_t>(id);
    }
  }
}

int64_t TokenFile::document_begin(int64_t document) const {
  WEFT_CHECK(document >= 0 && document <= num_documents(), "TokenFile::document_begin",
             "got document {} of {}", document, num_documents());
  int64_t sequence = 0;
  pool_->read(idx_path_, index_.documents_offset() + 8 * document, &sequence, sizeof sequence);
  if (sequence == index_.sequences) return num_tokens();
  if (sequence < 0 || sequence > index_.sequences) {
    throw InputError(idx_path_, "changed while it was in use");
  }
  int64_t offset = 0;
  pool_->read(idx_path_, index_.offsets_offset() + 8 * sequence, &offset, sizeof offset);
  return std::clamp<int64_t>(offset / index_.item_size, 0, num_tokens());
}

std::vector<int32_t> TokenFile::document(int64_t document) const {
  const int64_t begin = document_begin(document);
  std::vector<int32_t> ids(
      static_cast<size_t>(std::max<int64_t>(0, document_begin(document + 1) - begin)));
  read(begin, static_cast<int64_t>(ids.size()), ids.data());
  return ids;
}

int64_t TokenFile::max_id() const {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kPiece, num_tokens())));
  int64_t greatest = -1;
  for (int64_t begin = 0; begin < num_tokens(); begin += kPiece) {
    const int64_t piece = std::min(kPiece, num_tokens() - begin);
    read(begin, piece, ids.data());
    greatest = std::max<int64_t>(greatest, *std::max_element(ids.begin(), ids.begin() + piece));
  }
  return greatest;
}

}  // namespace weft
