// A tokenizer whose ids must stay inside the vocabulary of a model.
#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/data/tokenizer.h"

namespace weft {
namespace {

class LimitedTokenizer : public Tokenizer {
 public:
  LimitedTokenizer(std::unique_ptr<Tokenizer> inner, int32_t vocab_size)
      : inner_(std::move(inner)), vocab_size_(vocab_size) {}

  void encode(std::string_view text, bool allow_special, std::vector<int32_t>& ids) const override {
    check(inner_->eod_id());
    const size_t first = ids.size();
    inner_->encode(text, allow_special, ids);
    for (size_t i = first; i < ids.size(); ++i) check(ids[i]);
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    return inner_->decode(ids, skip_special);
  }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t eod_id() const override { return inner_->eod_id() < vocab_size_ ? inner_->eod_id() : 0; }
  const std::string& name() const override { return inner_->name(); }

 private:
  void check(int32_t id) const {
    if (id < vocab_size_) return;
    throw InputError("data.tokenizer",
                     fmt::format("got id {} of tokenizer {} for text, expected ids below the "
                                 "vocabulary size {} of the model; try the tokenizer of the model",
                                 id, inner_->name(), vocab_size_));
  }

  std::unique_ptr<Tokenizer> inner_;
  int32_t vocab_size_;
};

}  // namespace

std::unique_ptr<Tokenizer> limit_vocabulary(std::unique_ptr<Tokenizer> tokenizer,
                                            int32_t vocab_size) {
  return std::make_unique<LimitedTokenizer>(std::move(tokenizer), vocab_size);
}

}  // namespace weft
