#include "weft/data/added_tokens.h"

#include <algorithm>

#include "weft/data/unicode.h"

namespace weft {
namespace {

/// The code point that ends `text`, 0 when it is empty or not valid there.
char32_t last_code(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) continue;
    const std::string_view tail = text.substr(begin);
    if (valid_utf8_prefix(tail) != tail.size()) return 0;
    size_t length = 0;
    return decode_utf8(tail, &length);
  }
  return 0;
}

char32_t first_code(std::string_view text, size_t* length) {
  const std::string_view head = text.substr(0, 4);
  if (valid_utf8_prefix(head) == 0) return 0;
  return decode_utf8(head, length);
}

bool touches_word(std::string_view before, std::string_view after) {
  size_t length = 0;
  return is_word_character(last_code(before)) || is_word_character(first_code(after, &length));
}

size_t spaces_at_end(std::string_view text) {
  size_t size = text.size();
  for (;;) {
    const char32_t code = last_code(text.substr(0, size));
    if (code == 0 || !is_white_space(code)) return text.size() - size;
    std::string encoded;
    append_utf8(encoded, code);
    size -= encoded.size();
  }
}

size_t spaces_at_start(std::string_view text) {
  size_t at = 0;
  size_t length = 0;
  while (at < text.size() && is_white_space(first_code(text.substr(at), &length))) at += length;
  return at;
}

}  // namespace

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  nodes_.emplace_back();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    uint32_t node = 0;
    for (const char c : tokens_[i].content) {
      const auto byte = static_cast<unsigned char>(c);
      auto& children = nodes_[node].children;
      auto at = std::lower_bound(children.begin(), children.end(), std::pair(byte, uint32_t{0}));
      if (at == children.end() || at->first != byte) {
        const auto fresh = static_cast<uint32_t>(nodes_.size());
        children.insert(at, {byte, fresh});
        nodes_.emplace_back();
        node = fresh;
      } else {
        node = at->second;
      }
    }
    if (node != 0) {
      nodes_[node].token = static_cast<int32_t>(i);
      first_bytes_[static_cast<unsigned char>(tokens_[i].content[0])] = true;
    }
  }
}

const AddedToken* TokenFinder::longest(std::string_view text) const {
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto& children = nodes_[node].children;
    const auto at =
        std::lower_bound(children.begin(), children.end(), std::pair(byte, uint32_t{0}));
    if (at == children.end() || at->first != byte) break;
    node = at->second;
    if (nodes_[node].token >= 0) best = &tokens_[static_cast<size_t>(nodes_[node].token)];
  }
  return best;
}

void TokenFinder::split(std::string_view text, bool allow_special,
                        const std::function<void(std::string_view)>& on_text,
                        const std::function<void(const AddedToken&)>& on_token) const {
  size_t done = 0;
  size_t at = 0;
  while (at < text.size() && !tokens_.empty()) {
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* token = longest(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->special && !allow_special) continue;
    if (token->single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    if (begin < done) continue;  // its start was taken as white space by the token before
    if (token->lstrip) begin -= spaces_at_end(text.substr(done, begin - done));
    if (token->rstrip) end += spaces_at_start(text.substr(end));
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(*token);
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace weft
