// The few Unicode facts tokenizers need. Pure functions on UTF-8 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// Length of the valid UTF-8 prefix of `text` (no surrogates, no overlong forms).
size_t valid_utf8_prefix(std::string_view text);
/// Bytes at the start of `text` that belong to no valid sequence.
size_t invalid_utf8_prefix(std::string_view text);
/// Decodes the code point at the start of valid, non-empty UTF-8; sets its length in bytes.
char32_t decode_utf8(std::string_view text, size_t* length);
/// Appends the UTF-8 form of a code point.
void append_utf8(std::string& out, char32_t code);

/// Property White_Space.
bool is_white_space(char32_t code);
/// Letter, mark, number or connector punctuation: what \w means in tokenizer files.
bool is_word_character(char32_t code);
/// Canonical composition (NFC) of valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace weft
