// The tokens of a tokenizer that are cut out of the text before everything else. Immutable after
// construction; const calls may run in parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = true;    // looked for in normalised text, else in the text as it is
  bool special = false;      // a control token: found only when special tokens are allowed
};

/// Finds a set of tokens in one pass: leftmost, then longest.
class TokenFinder {
 public:
  TokenFinder() = default;
  explicit TokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Calls `on_text` for the parts between tokens (never empty) and `on_token` for tokens, in
  /// order. Control tokens count as text unless `allow_special`.
  void split(std::string_view text, bool allow_special,
             const std::function<void(std::string_view)>& on_text,
             const std::function<void(const AddedToken&)>& on_token) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;  // sorted by byte
    int32_t token = -1;
  };
  /// The longest token at the start of `text`, or nullptr.
  const AddedToken* longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool first_bytes_[256] = {};
};

}  // namespace weft
