#include "weft/data/bpe_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/data/unicode.h"

namespace weft {

BpeTokenizer::BpeTokenizer(BpeModel model, PreTokenizer pre_tokenizer)
    : model_(std::move(model)), pre_tokenizer_(std::move(pre_tokenizer)) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : model_.added) {
    if (token.content.empty()) continue;
    if (token.normalized && model_.nfc) token.content = normalize(token.content);
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_finder_ = TokenFinder(std::move(raw));
  normalized_finder_ = TokenFinder(std::move(normalized));
  // Most pieces of real text are one token: look them up instead of merging them.
  std::vector<int32_t> symbols;
  for (const auto& [text, id] : model_.pieces) {
    bool whole = model_.ignore_merges;
    if (!whole) {
      symbols.clear();
      for (const char c : text) {
        symbols.push_back(model_.byte_ids[static_cast<unsigned char>(c)]);
      }
      if (std::find(symbols.begin(), symbols.end(), -1) != symbols.end()) continue;
      model_.merges.merge(symbols);
      whole = symbols.size() == 1 && symbols[0] == id;
    }
    if (whole) whole_.emplace(text, id);
  }
}

std::string BpeTokenizer::normalize(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    out += to_nfc(valid);
    text.remove_prefix(valid.size());
    const size_t invalid = invalid_utf8_prefix(text);
    out += text.substr(0, invalid);
    text.remove_prefix(invalid);
  }
  return out;
}

void BpeTokenizer::encode(std::string_view text, bool allow_special,
                          std::vector<int32_t>& ids) const {
  raw_finder_.split(
      text, allow_special,
      [&](std::string_view part) {
        if (model_.nfc) {
          encode_normalized(normalize(part), allow_special, ids);
        } else {
          encode_normalized(part, allow_special, ids);
        }
      },
      [&](const AddedToken& token) { ids.push_back(token.id); });
}

void BpeTokenizer::encode_normalized(std::string_view text, bool allow_special,
                                     std::vector<int32_t>& ids) const {
  normalized_finder_.split(
      text, allow_special,
      [&](std::string_view part) {
        pre_tokenizer_.split(part, [&](std::string_view piece) { encode_piece(piece, ids); });
      },
      [&](const AddedToken& token) { ids.push_back(token.id); });
}

void BpeTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto found = whole_.find(piece); found != whole_.end()) {
    ids.push_back(found->second);
    return;
  }
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  bool after_unknown = false;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t id = model_.byte_ids[byte];
    if (id < 0) {
      if (model_.unknown_id < 0) {
        throw InputError(model_.name, fmt::format("got byte 0x{:02x} in a text, expected only "
                                                  "bytes the vocabulary has; try a tokenizer "
                                                  "trained with the whole byte alphabet",
                                                  byte));
      }
      if (after_unknown && model_.fuse_unknown) continue;
      after_unknown = true;
      id = model_.unknown_id;
    } else {
      after_unknown = false;
    }
    symbols.push_back(id);
  }
  model_.merges.merge(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || !model_.present[static_cast<size_t>(id)]) {
      throw InputError(
          model_.name,
          fmt::format("got id {}, expected an id of the {} in the vocabulary", id, vocab_size()));
    }
    if (skip_special && model_.special[static_cast<size_t>(id)]) continue;
    text += model_.texts[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace weft
