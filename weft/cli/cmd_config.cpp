// weft config: the effective configuration, or every key there is.
#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/cli/verb.h"
#include "weft/config/config.h"

namespace weft {
namespace {

/// One row per key for people; --json has the same as data.
std::string schema_table() {
  std::string text;
  const Json schema = config_schema_json();
  for (const Json& row : schema.as_array()) {
    const std::string& range = row.at("range").as_string();
    text += fmt::format("{:<34} {}{}{}, default {}\n    {}\n", row.at("key").as_string(),
                        row.at("type").as_string(), range.empty() ? "" : ", ", range,
                        row.at("default").is_null() ? "unset" : row.at("default").dump(),
                        row.at("help").as_string());
  }
  return text;
}

class ConfigVerb : public Verb {
 public:
  std::string_view name() const override { return "config"; }
  std::string_view help() const override { return "show the effective configuration or every key"; }
  void declare(OptionList& options) override {
    options.optional_positional("CONFIG", &config_, "configuration file (TOML)");
    options.list("--set", &overrides_, "KEY=VALUE", "override one key, repeatable");
    options.flag("--schema", &schema_, "every key with type, default, range and meaning");
    options.flag("--json", &json_, "print one JSON document");
    options.flag("--markdown", &markdown_, "with --schema: print docs/configuration.md");
  }
  int run() override {
    if (markdown_ && (!schema_ || json_)) {
      throw UsageError("command line",
                       "got --markdown, expected it with --schema and without --json");
    }
    if (schema_) {
      // A configuration given along is checked all the same.
      if (!config_.empty()) load_config(config_, overrides_);
      if (json_) {
        print_json(config_schema_json());
      } else {
        print_text(markdown_ ? config_reference() : schema_table());
      }
      return 0;
    }
    if (config_.empty()) {
      throw UsageError("command line",
                       "got no CONFIG, expected a file or --schema; try weft config "
                       "--schema");
    }
    const Config config = load_config(config_, overrides_);
    if (json_) {
      print_json(config_json(config));
    } else {
      print_text(config_toml(config));
    }
    return 0;
  }

 private:
  std::string config_;
  std::vector<std::string> overrides_;
  bool schema_ = false;
  bool json_ = false;
  bool markdown_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_config_verb() { return std::make_unique<ConfigVerb>(); }

}  // namespace weft
