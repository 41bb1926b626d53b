// A parsed TOML value with its place, so that only parse.cpp sees the TOML library.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/config/config.h"

namespace weft {

struct ConfigNode {
  enum class Kind { boolean, integer, number, string, list, table, other };
  Kind kind = Kind::other;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string string;             // text; of `other` the name of its type
  std::vector<ConfigNode> items;  // list; table: the values, in file order
  std::vector<std::string> keys;  // table: the key of each item
  std::string place;              // "run.toml:12" or "--set …"
};

/// Parses TOML; `name` stands for the file. Throws UsageError with line and column.
ConfigNode parse_toml(std::string_view text, const std::string& name);
/// Parses "key.path=value" of the command line; the value may be a bare word.
ConfigNode parse_override(const std::string& text);

/// Puts every key of `root` into `config`, checked against the schema. `folder` is that of the
/// config file. A key that is in `seen` already is a duplicate; new ones are added to it.
void assign(const ConfigNode& root, const std::string& folder, std::set<std::string>& seen,
            Config& config);

/// "a string", "an integer", … for messages.
std::string kind_text(const ConfigNode& node);

}  // namespace weft
