#include "weft/data/tokenizer.h"

#include <fmt/core.h>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int32_t kByteEod = 256;

class ByteTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, bool, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > kByteEod) {
        throw InputError(name_, fmt::format("got id {}, expected 0 to {}", id, kByteEod));
      }
      if (id != kByteEod) text += static_cast<char>(id);
    }
    return text;
  }
  int32_t vocab_size() const override { return kByteEod + 1; }
  int32_t eod_id() const override { return kByteEod; }
  const std::string& name() const override { return name_; }

 private:
  std::string name_ = "bytes";
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace weft
