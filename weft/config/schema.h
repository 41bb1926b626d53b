// The one table behind every key of the configuration: parsing, defaults, ranges, help, output and
// docs/configuration.md all read it. Adding a knob = its member in config.h and its row in
// schema.cpp (and a rule in validate.cpp when it depends on other keys).
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/config/config.h"

namespace weft {

/// Where a key lives in Config. OptimizerConfig stands for the pair `betas`.
using Field =
    std::variant<bool& (*)(Config&), int64_t& (*)(Config&), uint64_t& (*)(Config&),
                 double& (*)(Config&), std::string& (*)(Config&), std::optional<bool>& (*)(Config&),
                 std::optional<int64_t>& (*)(Config&), std::optional<double>& (*)(Config&),
                 std::optional<std::string>& (*)(Config&), std::vector<std::string>& (*)(Config&),
                 std::vector<double>& (*)(Config&), std::vector<int64_t>& (*)(Config&),
                 std::optional<Json>& (*)(Config&), OffloadPolicy& (*)(Config&),
                 std::vector<ShardStrategy>& (*)(Config&),
                 std::vector<std::pair<std::string, std::string>>& (*)(Config&),
                 OptimizerConfig& (*)(Config&)>;

/// Allowed numbers; each element of a list obeys it.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
  /// ">= 0", "0 <= x < 1"; "" without bounds.
  std::string text() const;
};

/// The key applies only while another key has one of these values.
struct Only {
  std::string_view key;
  std::vector<std::string_view> values;
};

struct KeySpec {
  std::string_view key;  // full path
  Field field;
  Range range;
  std::vector<std::string_view> choices;
  bool bytes = false;       // a size: integer or "4GiB"
  bool automatic = false;   // "auto" leaves it unset
  bool unset_zero = false;  // 0 or "" in the struct means unset and cannot be written
  bool path = false;        // a file or folder, resolved against the folder of the config
  Only only;
  std::string_view only_auto;             // and only while this key is "auto"
  std::vector<std::string_view> aliases;  // names of other trainers, for suggestions
  std::string_view help;
};

/// Every key, in the order of the sections.
std::span<const KeySpec> config_schema();
/// The row of `key`, or nullptr.
const KeySpec* find_key(std::string_view key);
/// The part before the last dot; "" for top-level keys.
std::string_view section_of(std::string_view key);
std::string_view leaf_of(std::string_view key);
/// Whether TOML takes `key` without quotes.
bool is_bare_key(std::string_view key);

/// "integer", "number", "size or \"auto\"", …
std::string type_text(const KeySpec& spec);
/// Choices or bounds, "" without any.
std::string range_text(const KeySpec& spec);
/// The value in `config`; null while unset.
Json key_value(const KeySpec& spec, const Config& config);
/// Whether the key has a meaning under the other keys of `config`.
bool key_applies(const KeySpec& spec, const Config& config);

/// The valid key nearest to `key`, or "" when none is near.
std::string nearest_key(std::string_view key);
/// The nearest of `names`, or "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string_view>& names);

/// Refuses values that parse but that this version cannot honour. Throws UsageError.
void refuse_unsupported(const Config& config);

/// Throws UsageError at the place where `key` was set.
[[noreturn]] void refuse_key(const Config& config, std::string_view key, const std::string& text);

}  // namespace weft
