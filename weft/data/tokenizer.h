// Text to token ids and back. A tokenizer is immutable after loading; all const calls may run from
// several threads at once. docs/formats/tokenizer.md says what is read from tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` (any bytes, valid UTF-8 or not) to `ids`. The text of a control
  /// token ("<|endoftext|>") is plain text unless `allow_special`. No begin or end ids are added.
  virtual void encode(std::string_view text, bool allow_special,
                      std::vector<int32_t>& ids) const = 0;
  /// The bytes of `ids`, nothing cleaned up; control tokens give their own text unless
  /// `skip_special` (id 256 of the byte tokenizer has no text). Throws InputError for an id
  /// outside the vocabulary. Decoding piece by piece equals decoding at once.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;
  /// Greatest id + 1.
  virtual int32_t vocab_size() const = 0;
  /// End-of-document id.
  virtual int32_t eod_id() const = 0;
  /// "bytes" or the path it was loaded from.
  virtual const std::string& name() const = 0;

  std::vector<int32_t> encode(std::string_view text, bool allow_special = false) const {
    std::vector<int32_t> ids;
    encode(text, allow_special, ids);
    return ids;
  }
};

/// Ids 0-255 are the bytes, 256 is end of document.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// `spec` is "bytes", a tokenizer.json file, or a folder with tokenizer.json (or vocab.json and
/// merges.txt). Throws InputError when a file is missing, damaged or asks for an unsupported part.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

/// `tokenizer` for data of a model with `vocab_size` ids: that is the vocabulary ids of files are
/// checked against, and text that needs an id beyond it is an InputError. An end-of-document id
/// beyond it becomes 0, which only pads rows then.
std::unique_ptr<Tokenizer> limit_vocabulary(std::unique_ptr<Tokenizer> tokenizer,
                                            int32_t vocab_size);

/// Byte-level BPE from the text of a tokenizer.json; `name` stands for the file in messages.
/// `eos_token` is that of tokenizer_config.json, "" when unknown.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const std::string& eos_token = "");

}  // namespace weft
