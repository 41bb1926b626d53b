// The effective configuration and the schema as text: TOML, JSON, Markdown.
#include <fmt/core.h>

#include <cmath>

#include "weft/base/error.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

/// JSON strings are TOML basic strings, except for DEL.
std::string toml_string(const std::string& text) {
  std::string out;
  for (const char c : Json(text).dump()) {
    if (c == '\x7f') {
      out += "\\u007F";
    } else {
      out += c;
    }
  }
  return out;
}

std::string toml_key(const std::string& key) { return is_bare_key(key) ? key : toml_string(key); }

std::string toml_text(const Json& value) {
  if (value.is_string()) return toml_string(value.as_string());
  if (value.is_array()) {
    std::string text = "[";
    for (const Json& item : value.as_array()) {
      if (text.size() > 1) text += ", ";
      text += toml_text(item);
    }
    return text + "]";
  }
  if (value.is_object()) {
    std::string text = "{";
    for (const auto& [key, item] : value.as_object()) {
      text += fmt::format("{} {} = {}", text.size() > 1 ? "," : "", toml_key(key), toml_text(item));
    }
    return text + (text.size() > 1 ? " }" : "}");
  }
  return value.dump();  // booleans and finite numbers read the same in both
}

/// Whether a row goes into the effective configuration.
bool is_written(const KeySpec& spec, const Config& config, const Json& value) {
  if (value.is_null() || !key_applies(spec, config)) return false;
  return !(value.is_object() && value.as_object().empty());
}

std::string default_text(const KeySpec& spec) {
  const Json value = key_value(spec, Config());
  return value.is_null() ? "unset" : toml_text(value);
}

std::string help_text(const KeySpec& spec) {
  std::string text(spec.help);
  if (spec.only.key.empty()) return text;
  std::string values;
  for (const std::string_view word : spec.only.values) {
    if (word.empty()) continue;
    if (!values.empty()) values += " or ";
    values += word;
  }
  text += fmt::format(" Only with {} = {}", spec.only.key, values);
  if (!spec.only_auto.empty()) text += fmt::format(" and {} = auto", spec.only_auto);
  return text + ".";
}

/// Bars would end a table cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string config_toml(const Config& config) {
  std::string text;
  std::string_view section;
  for (const KeySpec& spec : config_schema()) {
    const Json value = key_value(spec, config);
    if (!is_written(spec, config, value)) continue;
    if (section_of(spec.key) != section) {
      section = section_of(spec.key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", leaf_of(spec.key), toml_text(value));
  }
  return text;
}

Json config_json(const Config& config) {
  Json root = Json::object();
  for (const KeySpec& spec : config_schema()) {
    if (!key_applies(spec, config)) continue;
    const Json value = key_value(spec, config);
    // At most two levels of sections.
    const std::string_view section = section_of(spec.key);
    if (section.empty()) {
      root.set(spec.key, value);
      continue;
    }
    const std::string_view outer = section.substr(0, section.find('.'));
    Json table = root.contains(outer) ? root.at(outer) : Json::object();
    if (outer == section) {
      table.set(leaf_of(spec.key), value);
    } else {
      const std::string_view inner = leaf_of(section);
      Json nested = table.contains(inner) ? table.at(inner) : Json::object();
      nested.set(leaf_of(spec.key), value);
      table.set(inner, std::move(nested));
    }
    root.set(outer, std::move(table));
  }
  return root;
}

Json config_schema_json() {
  Json rows = Json::array();
  for (const KeySpec& spec : config_schema()) {
    rows.push(Json::object({{"key", spec.key},
                            {"type", type_text(spec)},
                            {"default", key_value(spec, Config())},
                            {"range", range_text(spec)},
                            {"help", help_text(spec)}}));
  }
  return rows;
}

std::string config_reference() {
  std::string text =
      "# Configuration\n\n"
      "Made by `weft config --schema --markdown` from the table in `weft/config/schema.cpp`; a "
      "test\n"
      "compares the two. Unknown keys, wrong types, duplicates and values out of range are "
      "refused\n"
      "(exit code 2) with file, line, full key path and the nearest valid name. `--set "
      "key.path=value`\n"
      "follows the same rules; its value is written as in TOML, a bare word is a string. Sizes "
      "are\n"
      "integers or strings such as \"80GB\" (10^9) and \"4GiB\" (2^30). Relative paths start at "
      "the\n"
      "folder of the configuration file, those given with `--set` at the current folder. A key "
      "that does\n"
      "not apply to the chosen optimizer, schedule or backend is refused, not ignored.\n";
  std::string_view section = "?";
  for (const KeySpec& spec : config_schema()) {
    if (section_of(spec.key) != section) {
      section = section_of(spec.key);
      text +=
          section.empty() ? std::string("\n## Top level\n") : fmt::format("\n## [{}]\n", section);
      text += "\n| key | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    const std::string range = range_text(spec);
    text +=
        fmt::format("| `{}` | {} | `{}` | {} | {} |\n", leaf_of(spec.key), cell(type_text(spec)),
                    cell(default_text(spec)), cell(range), cell(help_text(spec)));
  }
  return text;
}

}  // namespace weft
