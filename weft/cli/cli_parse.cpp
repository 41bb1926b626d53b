#include "weft/cli/cli_parse.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <limits>

#include "weft/base/error.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

/// Stands for "given without a value"; no command line can spell it.
const std::string kBare = "\x1f";

/// What CLI11 found for one option, before it is converted.
struct Found {
  const OptionSpec* spec = nullptr;
  CLI::Option* option = nullptr;
  std::vector<std::string> values;
  bool flag = false;
};

template <class T>
T convert_number(const OptionSpec& spec, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool good = error == std::errc() && stop == end;
  if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(value);
  if (!good) {
    throw UsageError("command line",
                     fmt::format("got {} {}, expected {}", spec.name, Json(text).dump(),
                                 std::is_floating_point_v<T> ? "a finite number"
                                 : std::is_signed_v<T>       ? "an integer"
                                                             : "an integer >= 0"));
  }
  return value;
}

struct Store {
  const OptionSpec& spec;
  const Found& found;

  const std::string& text() const { return found.values.front(); }
  void operator()(bool* target) const { *target = found.flag; }
  void operator()(std::string* target) const { *target = text(); }
  void operator()(int64_t* target) const { *target = convert_number<int64_t>(spec, text()); }
  void operator()(uint64_t* target) const { *target = convert_number<uint64_t>(spec, text()); }
  void operator()(double* target) const { *target = convert_number<double>(spec, text()); }
  void operator()(std::optional<std::string>* target) const {
    *target = text() == kBare ? std::string() : text();
  }
  void operator()(std::optional<int64_t>* target) const {
    *target = convert_number<int64_t>(spec, text());
  }
  void operator()(std::optional<uint64_t>* target) const {
    *target = convert_number<uint64_t>(spec, text());
  }
  void operator()(std::optional<double>* target) const {
    *target = convert_number<double>(spec, text());
  }
  void operator()(std::vector<std::string>* target) const { *target = found.values; }
};

void add_option(CLI::App& app, Found& found) {
  const OptionSpec& spec = *found.spec;
  const bool many = std::holds_alternative<std::vector<std::string>*>(spec.target);
  if (std::holds_alternative<bool*>(spec.target)) {
    found.option = app.add_flag(spec.name, found.flag, spec.help);
    return;
  }
  found.option = app.add_option(spec.name, found.values, spec.help);
  found.option->required(spec.required);
  found.option->type_name(spec.value_optional ? "[=" + spec.value + "]" : spec.value);
  if (spec.positional && many) {
    found.option->expected(spec.required ? 1 : 0, std::numeric_limits<int>::max() / 2);
  } else if (!many) {
    found.option->expected(1);
  }
  if (!spec.positional) found.option->allow_extra_args(false);  // one word per option
}

const OptionSpec* find_option(const OptionList& options, std::string_view name) {
  for (const OptionSpec& spec : options.specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

/// Spells out what CLI11 would read differently: "--resume" alone must not take the next word, and
/// "--prompt=" means an empty value.
std::vector<std::string> normalized(const OptionList& options,
                                    const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    const size_t split = word.find('=');
    const OptionSpec* spec = find_option(options, word.substr(0, split));
    const bool empty = split == std::string::npos || split + 1 == word.size();
    if (spec != nullptr && spec->value_optional && empty) {
      out.push_back(spec->name + "=" + kBare);
    } else if (spec != nullptr && !spec->value.empty() && split + 1 == word.size()) {
      out.push_back(spec->name);
      out.emplace_back();
    } else {
      out.push_back(word);
    }
  }
  return out;
}

[[noreturn]] void refuse_word(const Verb& verb, const OptionList& options,
                              const std::string& word) {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : options.specs()) {
    if (!spec.positional) names.push_back(spec.name);
  }
  std::string text = fmt::format("got {} after weft {}, expected one of {}", Json(word).dump(),
                                 verb.name(), fmt::join(names, ", "));
  const std::string near = nearest_name(word.substr(0, word.find('=')), names);
  text += near.empty() ? fmt::format("; try weft {} --help", verb.name())
                       : fmt::format("; try {}", near);
  throw UsageError("command line", text);
}

}  // namespace

std::vector<std::unique_ptr<Verb>> all_verbs() {
  std::vector<std::unique_ptr<Verb>> verbs;
#define WEFT_VERB(name) verbs.push_back(make_##name##_verb());
#include "weft/cli/verb_list.def"
#undef WEFT_VERB
  return verbs;
}

bool parse_options(Verb& verb, const std::vector<std::string>& words, std::string* help_text) {
  OptionList options;
  verb.declare(options);
  CLI::App app(std::string(verb.help()), fmt::format("weft {}", verb.name()));
  app.allow_extras();
  std::deque<Found> all;  // CLI11 keeps references
  for (const OptionSpec& spec : options.specs()) add_option(app, all.emplace_back(Found{&spec}));
  std::vector<std::string> rest = normalized(options, words);
  std::reverse(rest.begin(), rest.end());  // CLI11 takes the words from the back
  try {
    app.parse(rest);
  } catch (const CLI::CallForHelp&) {
    *help_text = app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    if (!unknown.empty()) refuse_word(verb, options, unknown.front());
    throw UsageError("command line", fmt::format("got wrong arguments ({}), "
                                                 "expected what weft {} --help shows",
                                                 error.what(), verb.name()));
  }
  const std::vector<std::string> unknown = app.remaining();
  if (!unknown.empty()) refuse_word(verb, options, unknown.front());
  for (const Found& found : all) {
    if (found.option->count() > 0) std::visit(Store{*found.spec, found}, found.spec->target);
  }
  return true;
}

}  // namespace weft
