#include "weft/data/pre_tokenizer.h"

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/data/pattern.h"
#include "weft/data/unicode.h"

namespace weft {
namespace {

constexpr const char* kWordPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool flag(const Json& json, const char* key, bool otherwise) {
  const Json* value = json.find(key);
  return value == nullptr ? otherwise : value->as_bool();
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& json, const std::string& name) : name_(name) {
  if (json.is_null()) {
    throw InputError(name_, "got no pre_tokenizer, expected ByteLevel; try a byte-level tokenizer");
  }
  const std::string& type = json.at("type").as_string();
  if (type == "Sequence") {
    for (const Json& step : json.at("pretokenizers").as_array()) read_step(step);
  } else {
    read_step(json);
  }
  if (!byte_level_) {
    throw InputError(name_, fmt::format("got pre_tokenizer {} without ByteLevel, expected a "
                                        "byte-level tokenizer",
                                        type));
  }
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;

void PreTokenizer::read_step(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (byte_level_) {
    throw InputError(name_, fmt::format("got pre_tokenizer {} after ByteLevel, expected ByteLevel "
                                        "to be the last one",
                                        type));
  }
  if (type == "ByteLevel") {
    byte_level_ = true;
    add_prefix_space_ = flag(json, "add_prefix_space", true);
    if (flag(json, "use_regex", true)) {
      word_pattern_ = std::make_unique<Pattern>(kWordPattern, name_);
    }
  } else if (type == "Split") {
    const std::string& behavior = json.at("behavior").as_string();
    if (behavior != "Isolated" || flag(json, "invert", false)) {
      throw InputError(name_,
                       fmt::format("got pre_tokenizer Split with behavior {}{}, expected "
                                   "Isolated and not inverted",
                                   behavior, flag(json, "invert", false) ? " inverted" : ""));
    }
    const Json& pattern = json.at("pattern");
    if (const Json* regex = pattern.find("Regex")) {
      splits_.push_back(std::make_unique<Pattern>(regex->as_string(), name_));
    } else {
      splits_.push_back(
          std::make_unique<Pattern>(escape_pattern(pattern.at("String").as_string()), name_));
    }
  } else if (type == "Digits") {
    splits_.push_back(std::make_unique<Pattern>(
        flag(json, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", name_));
  } else {
    throw InputError(name_, fmt::format("got pre_tokenizer {}, expected ByteLevel, Split, Digits "
                                        "or a Sequence of these ending with ByteLevel",
                                        type));
  }
}

void PreTokenizer::byte_level(std::string_view text, bool prefix,
                              const std::function<void(std::string_view)>& piece) const {
  std::string prefixed;
  if (prefix && !text.starts_with(' ')) {
    prefixed.reserve(text.size() + 1);
    prefixed += ' ';
    prefixed += text;
    text = prefixed;
  }
  if (!word_pattern_) return piece(text);
  Pieces pieces;
  word_pattern_->split(text, pieces);
  for (const std::string_view part : pieces) piece(part);
}

void PreTokenizer::split(std::string_view text,
                         const std::function<void(std::string_view)>& piece) const {
  bool begin = true;  // of the text, where a prefix space belongs even before invalid bytes
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    if (!valid.empty()) {
      Pieces pieces = {valid};
      for (const auto& pattern : splits_) {
        Pieces next;
        for (const std::string_view part : pieces) pattern->split(part, next);
        pieces.swap(next);
      }
      for (const std::string_view part : pieces) {
        byte_level(part, add_prefix_space_ && (begin || !splits_.empty()), piece);
        begin = false;
      }
    }
    text.remove_prefix(valid.size());
    const std::string_view invalid = text.substr(0, invalid_utf8_prefix(text));
    if (!invalid.empty()) {
      if (begin && add_prefix_space_) piece(" ");
      begin = false;
      piece(invalid);
    }
    text.remove_prefix(invalid.size());
  }
}

}  // namespace weft
