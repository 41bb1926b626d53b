// A regular expression of a tokenizer file, compiled with PCRE2. Immutable; const calls may run in
// parallel. Memory of a search is bounded and the machine stack is not used for long texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Pattern {
 public:
  /// Throws InputError (with `where` = `name`) when PCRE2 does not accept `expression`.
  Pattern(const std::string& expression, const std::string& name);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// Appends the matches in valid UTF-8 `text` and the parts between them, in order; together they
  /// are `text`. Throws InputError when a match needs too much work or memory.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string name_;
};

/// `text` as an expression that matches itself.
std::string escape_pattern(std::string_view text);

/// `expression` with \s and \S spelt out as Unicode White_Space, which PCRE2 takes wider.
std::string spell_out_spaces(std::string_view expression);

}  // namespace weft
