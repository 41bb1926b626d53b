// TOML text -> ConfigNode. The only source that sees toml++.
#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "weft/base/error.h"
#include "weft/config/config.h"
#include "weft/config/node.h"

namespace weft {
namespace {

std::string place_of(const toml::source_region& source, const std::string& name, bool lines) {
  return lines ? fmt::format("{}:{}", name, source.begin.line) : name;
}

ConfigNode convert(const toml::node& from, const std::string& name, bool lines) {
  ConfigNode node;
  node.place = place_of(from.source(), name, lines);
  switch (from.type()) {
    case toml::node_type::boolean:
      node.kind = ConfigNode::Kind::boolean;
      node.boolean = from.as_boolean()->get();
      break;
    case toml::node_type::integer:
      node.kind = ConfigNode::Kind::integer;
      node.integer = from.as_integer()->get();
      break;
    case toml::node_type::floating_point:
      node.kind = ConfigNode::Kind::number;
      node.number = from.as_floating_point()->get();
      break;
    case toml::node_type::string:
      node.kind = ConfigNode::Kind::string;
      node.string = from.as_string()->get();
      break;
    case toml::node_type::array:
      node.kind = ConfigNode::Kind::list;
      for (const toml::node& item : *from.as_array()) {
        node.items.push_back(convert(item, name, lines));
      }
      break;
    case toml::node_type::table: {
      node.kind = ConfigNode::Kind::table;
      struct Member {
        toml::source_position begin;
        std::string key;
        const toml::node* value;
        std::string place;
      };
      std::vector<Member> members;
      for (const auto& [key, value] : *from.as_table()) {
        members.push_back({key.source().begin, std::string(key.str()), &value,
                           place_of(key.source(), name, lines)});
      }
      std::stable_sort(members.begin(), members.end(),
                       [](const Member& a, const Member& b) { return a.begin < b.begin; });
      for (const Member& member : members) {
        ConfigNode value = convert(*member.value, name, lines);
        value.place = member.place;
        node.keys.push_back(member.key);
        node.items.push_back(std::move(value));
      }
      break;
    }
    default: node.string = "a date or time"; break;
  }
  return node;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// For messages: short and without control characters.
std::string one_line(std::string_view text) {
  std::string out(text.substr(0, 120));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return out;
}

/// Full path of the key on a line, from the section header above it: for duplicates, which the
/// TOML library reports without their section.
std::string key_on_line(std::string_view text, size_t line) {
  std::istringstream stream{std::string(text)};
  std::string section;
  std::string row;
  for (size_t i = 1; i <= line && std::getline(stream, row); ++i) {
    const std::string_view content = trimmed(row);
    if (i == line) {
      const std::string key = one_line(trimmed(content.substr(0, content.find('='))));
      if (content.starts_with('[') || section.empty()) return key;
      return content.find('=') == std::string_view::npos ? "" : section + "." + key;
    }
    if (content.starts_with('[') && !content.starts_with("[[")) {
      section = one_line(trimmed(content.substr(1, content.find(']') - 1)));
    }
  }
  return "";
}

[[noreturn]] void refuse_syntax(const toml::parse_error& error, std::string_view text,
                                const std::string& name) {
  const auto& begin = error.source().begin;
  const std::string place = fmt::format("{}:{}:{}", name, begin.line, begin.column);
  const std::string_view description = error.description();
  if (description.find("redefine") != std::string_view::npos) {
    throw UsageError(place, fmt::format("got duplicate key {}, expected every key once; try "
                                        "removing one of the two",
                                        key_on_line(text, begin.line)));
  }
  const std::string key = key_on_line(text, begin.line);
  throw UsageError(
      place, fmt::format("got invalid TOML{} ({}), expected key = value, with strings in quotes; "
                         "try checking this line",
                         key.empty() ? "" : " at " + key, description));
}

/// Index of the '=' that ends the key of an override; quoted parts of the key may hold one too.
size_t find_assignment(std::string_view text) {
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == quote) quote = 0;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '=') {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string quoted(std::string_view text) { return Json(text).dump(); }

}  // namespace

ConfigNode parse_toml(std::string_view text, const std::string& name) {
  try {
    return convert(toml::parse(text), name, true);
  } catch (const toml::parse_error& error) {
    refuse_syntax(error, text, name);
  }
}

ConfigNode parse_override(const std::string& text) {
  const size_t split = find_assignment(text);
  const std::string_view key = trimmed(std::string_view(text).substr(0, split));
  const std::string place = fmt::format("--set {}", one_line(key));
  if (split == std::string::npos || key.empty() || key.find('\n') != std::string_view::npos) {
    throw UsageError(place,
                     "got no assignment, expected key.path=value; try --set train.steps=100");
  }
  const std::string_view value = trimmed(std::string_view(text).substr(split + 1));
  if (value.empty()) {
    throw UsageError(place, fmt::format("got no value, expected {}=value; try {}='\"\"' for an "
                                        "empty string",
                                        key, key));
  }
  const auto parse = [&](std::string_view right) {
    return convert(toml::parse(fmt::format("{} = {}", key, right)), place, false);
  };
  if (value.find('\n') == std::string_view::npos) {
    try {
      return parse(value);
    } catch (const toml::parse_error&) {
      // Not TOML: a bare word, taken as a string below.
    }
  }
  try {
    return parse(quoted(value));
  } catch (const toml::parse_error& error) {
    throw UsageError(place, fmt::format("got key \"{}\" ({}), expected key.path=value; try --set "
                                        "train.steps=100",
                                        key, error.description()));
  }
}

Config parse_config(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides) {
  namespace fs = std::filesystem;
  Config config;
  config.path = name;
  const std::string folder = fs::absolute(fs::path(name)).parent_path().string();
  std::set<std::string> seen;
  assign(parse_toml(text, name), folder, seen, config);
  seen.clear();  // an override may replace a key of the file, but not another override
  const std::string here = fs::current_path().string();
  for (const std::string& item : overrides) assign(parse_override(item), here, seen, config);
  validate_config(config);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw InputError(path, "got a folder, expected a TOML file; try naming the file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError(path, fmt::format("got no readable file ({}), expected a configuration; try "
                                       "checking the path",
                                       errno_text(errno)));
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw InputError(path, "got a read error, expected TOML text");
  return parse_config(text, path, overrides);
}

}  // namespace weft
