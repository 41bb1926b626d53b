// Cuts text into the pieces that byte-level BPE works on. Only what docs/formats/tokenizer.md lists
// is supported; everything else is refused by name. Immutable; const calls may run in parallel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"

namespace weft {

class Pattern;

class PreTokenizer {
 public:
  /// From the `pre_tokenizer` member of a tokenizer.json; `name` stands for the file in messages.
  PreTokenizer(const Json& json, const std::string& name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;

  /// Calls `piece` for every piece of `text` in order. Bytes outside valid UTF-8 are pieces of
  /// their own. Throws InputError when a pattern gives up on the text.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  using Pieces = std::vector<std::string_view>;

  void read_step(const Json& json);
  void byte_level(std::string_view text, bool prefix,
                  const std::function<void(std::string_view)>& piece) const;

  std::string name_;
  std::vector<std::unique_ptr<Pattern>> splits_;  // applied one after another
  std::unique_ptr<Pattern> word_pattern_;         // of ByteLevel with use_regex
  bool add_prefix_space_ = false;
  bool byte_level_ = false;
};

}  // namespace weft
