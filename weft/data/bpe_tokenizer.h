// Byte-level BPE: added tokens are cut out, the rest is normalised, cut into pieces, and the bytes
// of each piece are merged. Internal to weft/data; users go through tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/json.h"
#include "weft/data/added_tokens.h"
#include "weft/data/bpe_merge.h"
#include "weft/data/pre_tokenizer.h"
#include "weft/data/tokenizer.h"

namespace weft {

/// What a tokenizer file says, checked.
struct BpeModel {
  std::string name;
  std::vector<std::string> texts;                   // by id: the bytes it stands for
  std::vector<bool> present;                        // by id: the vocabulary has it
  std::vector<bool> special;                        // by id
  std::array<int32_t, 256> byte_ids{};              // -1: no token
  std::unordered_map<std::string, int32_t> pieces;  // bytes -> id, control tokens left out
  MergeTable merges;
  std::vector<AddedToken> added;
  int32_t unknown_id = -1;  // taken for bytes without a token; -1: refuse them
  bool fuse_unknown = false;
  bool ignore_merges = false;
  bool nfc = false;
  int32_t eod_id = -1;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeModel model, PreTokenizer pre_tokenizer);

  using Tokenizer::encode;
  void encode(std::string_view text, bool allow_special, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(model_.texts.size()); }
  int32_t eod_id() const override { return model_.eod_id; }
  const std::string& name() const override { return model_.name; }

 private:
  void encode_normalized(std::string_view text, bool allow_special,
                         std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;
  std::string normalize(std::string_view text) const;

  BpeModel model_;
  PreTokenizer pre_tokenizer_;
  TokenFinder raw_finder_;
  TokenFinder normalized_finder_;
  // Pieces that are one token after merging (all of `pieces` with ignore_merges).
  std::unordered_map<std::string_view, int32_t> whole_;
};

/// Reads the text of a tokenizer.json. `eos_token` as in parse_tokenizer_json.
BpeModel read_bpe_model(const Json& json, const std::string& name, const std::string& eos_token);
/// The model of a vocab.json and the text of its merges.txt.
BpeModel read_bpe_pair(const Json& vocab, std::string_view merges, const std::string& name,
                       const std::string& eos_token);

/// Bytes of a token written in the byte alphabet of GPT-2; the text as it is when a character lies
/// outside that alphabet, then *complete is false.
std::string bytes_of_token(std::string_view token, bool* complete);

}  // namespace weft
