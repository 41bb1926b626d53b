// ConfigNode -> Config, each value checked against its row of the schema.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/config/node.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

constexpr std::string_view kAxes[] = {"", "data", "op", "pipeline", "expert"};
constexpr std::string_view kRopeKeys[] = {"rope_type",
                                          "type",
                                          "rope_theta",
                                          "factor",
                                          "low_freq_factor",
                                          "high_freq_factor",
                                          "original_max_position_embeddings",
                                          "attention_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "short_factor",
                                          "long_factor",
                                          "mscale",
                                          "mscale_all_dim",
                                          "partial_rotary_factor",
                                          "truncate"};

/// The value as one would write it, short enough for a message, with its type.
std::string shown(const ConfigNode& node) {
  std::string text;
  switch (node.kind) {
    case ConfigNode::Kind::boolean: text = node.boolean ? "true" : "false"; break;
    case ConfigNode::Kind::integer: text = std::to_string(node.integer); break;
    case ConfigNode::Kind::number: text = fmt::format("{}", node.number); break;
    case ConfigNode::Kind::string:
      text =
          Json(node.string.size() <= 40 ? node.string : node.string.substr(0, 37) + "...").dump();
      break;
    default: return kind_text(node);
  }
  return fmt::format("{} ({})", text, kind_text(node));
}

/// "an integer", "a list of strings".
std::string wanted(const KeySpec& spec) {
  const std::string type = type_text(spec);
  return (type.front() == 'i' ? "an " : "a ") + type;
}

std::string list_of(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

/// "1e-4" -> 1e-4: the whole string is one finite number.
bool is_number_text(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

class Assigner {
 public:
  Assigner(const KeySpec& spec, const ConfigNode& node, const std::string& folder, Config& config)
      : spec_(spec), node_(node), folder_(folder), config_(config) {}

  void operator()(bool& (*get)(Config&)) const { get(config_) = boolean(); }
  void operator()(int64_t& (*get)(Config&)) const { get(config_) = integer(node_); }
  void operator()(uint64_t& (*get)(Config&)) const {
    get(config_) = static_cast<uint64_t>(integer(node_));
  }
  void operator()(double& (*get)(Config&)) const { get(config_) = number(node_); }
  void operator()(std::string& (*get)(Config&)) const { get(config_) = string(node_); }
  void operator()(std::optional<bool>& (*get)(Config&)) const { get(config_) = boolean(); }
  void operator()(std::optional<int64_t>& (*get)(Config&)) const {
    get(config_) = is_auto() ? std::nullopt : std::optional(integer(node_));
  }
  void operator()(std::optional<double>& (*get)(Config&)) const {
    get(config_) = is_auto() ? std::nullopt : std::optional(number(node_));
  }
  void operator()(std::optional<std::string>& (*get)(Config&)) const {
    get(config_) = string(node_);
  }
  void operator()(std::vector<std::string>& (*get)(Config&)) const {
    std::vector<std::string> values;
    for (const ConfigNode& item : list()) values.push_back(string(item));
    get(config_) = std::move(values);
  }
  void operator()(std::vector<double>& (*get)(Config&)) const {
    std::vector<double> values;
    for (const ConfigNode& item : list()) values.push_back(number(item));
    get(config_) = std::move(values);
  }
  void operator()(std::vector<int64_t>& (*get)(Config&)) const {
    std::vector<int64_t> values;
    for (const ConfigNode& item : list()) values.push_back(integer(item));
    get(config_) = std::move(values);
  }
  void operator()(std::optional<Json>& (*get)(Config&)) const {
    if (node_.kind != ConfigNode::Kind::table) wrong_type(node_);
    for (size_t i = 0; i < node_.items.size(); ++i) {
      const std::string& name = node_.keys[i];
      const ConfigNode& value = node_.items[i];
      if (std::find(std::begin(kRopeKeys), std::end(kRopeKeys), name) == std::end(kRopeKeys)) {
        refuse_member(name, value, {std::begin(kRopeKeys), std::end(kRopeKeys)});
      }
    }
    get(config_) = json(node_);
  }
  void operator()(OffloadPolicy& (*get)(Config&)) const {
    OffloadPolicy policy;
    if (node_.kind == ConfigNode::Kind::table) {
      double sum = 0;
      for (size_t i = 0; i < node_.items.size(); ++i) {
        const std::string& tier = node_.keys[i];
        const ConfigNode& value = node_.items[i];
        if (tier != "device" && tier != "host" && tier != "nvme") {
          refuse_member(tier, value, {"device", "host", "nvme"});
        }
        const double part = number(value);
        if (!(part >= 0 && part <= 1)) {
          refuse(value, fmt::format("got {}.{} = {}, expected a fraction from 0 to 1", spec_.key,
                                    tier, part));
        }
        policy.fractions[tier] = part;
        sum += part;
      }
      if (!(std::abs(sum - 1.0) <= 1e-9)) {
        refuse(node_,
               fmt::format("got {} with fractions that sum to {}, expected 1", spec_.key, sum));
      }
      policy.tier.clear();
    } else {
      policy.tier = string(node_);
    }
    get(config_) = std::move(policy);
  }
  void operator()(std::vector<ShardStrategy>& (*get)(Config&)) const {
    if (node_.kind != ConfigNode::Kind::table) wrong_type(node_);
    for (size_t i = 0; i < node_.items.size(); ++i) {
      const std::string& pattern = node_.keys[i];
      const ConfigNode& value = node_.items[i];
      ShardStrategy strategy = shard(pattern, value);
      auto& all = get(config_);
      const auto old = std::find_if(all.begin(), all.end(),
                                    [&](const auto& entry) { return entry.pattern == pattern; });
      if (old != all.end()) {
        *old = std::move(strategy);
      } else {
        all.push_back(std::move(strategy));
      }
    }
  }
  void operator()(std::vector<std::pair<std::string, std::string>>& (*get)(Config&)) const {
    if (node_.kind != ConfigNode::Kind::table) wrong_type(node_);
    for (size_t i = 0; i < node_.items.size(); ++i) {
      const std::string& pattern = node_.keys[i];
      const ConfigNode& value = node_.items[i];
      const std::string tier = string(value);
      auto& all = get(config_);
      const auto old = std::find_if(all.begin(), all.end(),
                                    [&](const auto& entry) { return entry.first == pattern; });
      if (old != all.end()) {
        old->second = tier;
      } else {
        all.emplace_back(pattern, tier);
      }
    }
  }
  void operator()(OptimizerConfig& (*get)(Config&)) const {
    const auto& items = list();
    if (items.size() != 2) {
      refuse(node_, fmt::format("got {} with {} numbers, expected 2; try {} = [0.9, 0.95]",
                                spec_.key, items.size(), spec_.key));
    }
    get(config_).beta1 = number(items[0]);
    get(config_).beta2 = number(items[1]);
  }

 private:
  [[noreturn]] static void refuse(const ConfigNode& node, const std::string& text) {
    throw UsageError(node.place, text);
  }

  [[noreturn]] void wrong_type(const ConfigNode& node) const {
    std::string text =
        fmt::format("got {} = {}, expected {}", spec_.key, shown(node), wanted(spec_));
    if (node.kind == ConfigNode::Kind::string && is_number_text(node.string)) {
      text += fmt::format("; try {} = {} without quotes", spec_.key, node.string);
    } else if (!spec_.choices.empty()) {
      text += fmt::format("; try one of {}", list_of(spec_.choices));
    }
    refuse(node, text);
  }

  [[noreturn]] void refuse_member(const std::string& name, const ConfigNode& value,
                                  const std::vector<std::string_view>& names) const {
    std::string text =
        fmt::format("got unknown key {}.{}, expected one of {}", spec_.key, name, list_of(names));
    const std::string near = nearest_name(name, names);
    if (!near.empty()) text += fmt::format("; try {}.{}", spec_.key, near);
    refuse(value, text);
  }

  void check_range(const ConfigNode& node, double value) const {
    if (!std::isfinite(value)) {
      refuse(node,
             fmt::format("got {} = {}, expected a finite {}", spec_.key, value, type_text(spec_)));
    }
    if (!spec_.range.contains(value)) {
      refuse(node, fmt::format("got {} = {}, expected {}; try leaving it out for the default",
                               spec_.key, shown(node), spec_.range.text()));
    }
  }

  bool is_auto() const {
    return spec_.automatic && node_.kind == ConfigNode::Kind::string && node_.string == "auto";
  }

  bool boolean() const {
    if (node_.kind != ConfigNode::Kind::boolean) wrong_type(node_);
    return node_.boolean;
  }

  int64_t integer(const ConfigNode& node) const {
    int64_t value = 0;
    if (spec_.bytes && node.kind == ConfigNode::Kind::string) {
      value = parse_bytes(node.string, fmt::format("{}: {}", node.place, spec_.key));
    } else if (node.kind == ConfigNode::Kind::number && std::isfinite(node.number) &&
               std::trunc(node.number) == node.number && std::abs(node.number) < 1e15) {
      refuse(node, fmt::format("got {} = {}, expected {}; try {} = {:.0f} without point or "
                               "exponent",
                               spec_.key, shown(node), wanted(spec_), spec_.key, node.number));
    } else if (node.kind != ConfigNode::Kind::integer) {
      wrong_type(node);
    } else {
      value = node.integer;
    }
    check_range(node, static_cast<double>(value));
    return value;
  }

  double number(const ConfigNode& node) const {
    double value = 0;
    if (node.kind == ConfigNode::Kind::integer) {
      value = static_cast<double>(node.integer);
    } else if (node.kind == ConfigNode::Kind::number) {
      value = node.number;
    } else {
      wrong_type(node);
    }
    check_range(node, value);
    return value;
  }

  std::string string(const ConfigNode& node) const {
    if (node.kind != ConfigNode::Kind::string) wrong_type(node);
    const std::string& text = node.string;
    if (text.find('\0') != std::string::npos) {
      refuse(node, fmt::format("got {} with a zero byte, expected text", spec_.key));
    }
    if (!spec_.choices.empty() &&
        std::find(spec_.choices.begin(), spec_.choices.end(), text) == spec_.choices.end()) {
      std::string message = fmt::format("got {} = {}, expected one of {}", spec_.key, shown(node),
                                        list_of(spec_.choices));
      const std::string near = nearest_name(text, spec_.choices);
      if (!near.empty()) message += fmt::format("; try \"{}\"", near);
      refuse(node, message);
    }
    if ((spec_.unset_zero || spec_.path) && text.empty()) {
      refuse(node, fmt::format("got {} = \"\", expected a {}; try leaving it out", spec_.key,
                               spec_.path ? "path" : "name"));
    }
    return spec_.path ? resolve(text) : text;
  }

  std::string resolve(const std::string& text) const {
    if (spec_.key == "data.tokenizer" && text == "bytes") return text;
    return (std::filesystem::path(folder_) / text).lexically_normal().string();
  }

  const std::vector<ConfigNode>& list() const {
    if (node_.kind != ConfigNode::Kind::list) wrong_type(node_);
    return node_.items;
  }

  Json json(const ConfigNode& node) const {
    switch (node.kind) {
      case ConfigNode::Kind::boolean: return node.boolean;
      case ConfigNode::Kind::integer: return node.integer;
      case ConfigNode::Kind::number: check_range(node, node.number); return node.number;
      case ConfigNode::Kind::string: return node.string;
      case ConfigNode::Kind::list: {
        Json array = Json::array();
        for (const ConfigNode& item : node.items) array.push(json(item));
        return array;
      }
      case ConfigNode::Kind::table: {
        Json object = Json::object();
        for (size_t i = 0; i < node.items.size(); ++i) {
          object.set(node.keys[i], json(node.items[i]));
        }
        return object;
      }
      case ConfigNode::Kind::other: break;
    }
    wrong_type(node);
  }

  ShardStrategy shard(const std::string& pattern, const ConfigNode& value) const {
    const std::string key = fmt::format("{}.\"{}\"", spec_.key, pattern);
    if (value.kind != ConfigNode::Kind::table || value.items.empty()) {
      refuse(value, fmt::format("got {} = {}, expected {{ input = […], weight = […] }} or "
                                "{{ strategy = \"((dp,1),(1,op))\" }}",
                                key, shown(value)));
    }
    ShardStrategy strategy;
    strategy.pattern = pattern;
    for (size_t i = 0; i < value.items.size(); ++i) {
      const std::string& operand = value.keys[i];
      const ConfigNode& axes = value.items[i];
      if (operand == "strategy") {
        if (axes.kind != ConfigNode::Kind::string || axes.string.empty()) {
          refuse(axes, fmt::format("got {}.strategy = {}, expected a string like "
                                   "\"((dp,1),(1,op))\"",
                                   key, shown(axes)));
        }
        strategy.strategy = axes.string;
        continue;
      }
      if (axes.kind != ConfigNode::Kind::list) {
        refuse(axes, fmt::format("got {}.{} = {}, expected a list with one axis per tensor dim",
                                 key, operand, shown(axes)));
      }
      auto& dims = strategy.operands[operand];
      for (const ConfigNode& axis : axes.items) {
        if (axis.kind != ConfigNode::Kind::string ||
            std::find(std::begin(kAxes), std::end(kAxes), axis.string) == std::end(kAxes)) {
          refuse(axis, fmt::format("got axis {} in {}.{}, expected data, op, pipeline, expert or "
                                   "\"\"",
                                   shown(axis), key, operand));
        }
        dims.push_back(axis.string);
      }
    }
    if (!strategy.strategy.empty() && !strategy.operands.empty()) {
      refuse(value, fmt::format("got {} with strategy and axis lists, expected one form", key));
    }
    return strategy;
  }

  const KeySpec& spec_;
  const ConfigNode& node_;
  const std::string& folder_;
  Config& config_;
};

bool is_section(std::string_view path) {
  return std::any_of(config_schema().begin(), config_schema().end(), [&](const KeySpec& spec) {
    return spec.key.size() > path.size() && spec.key.starts_with(path) &&
           spec.key[path.size()] == '.';
  });
}

/// Names directly below `section`.
std::vector<std::string_view> names_in(std::string_view section) {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : config_schema()) {
    std::string_view rest = spec.key;
    if (!section.empty()) {
      if (!rest.starts_with(section) || rest.size() <= section.size() ||
          rest[section.size()] != '.') {
        continue;
      }
      rest.remove_prefix(section.size() + 1);
    }
    const std::string_view name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse_unknown(const std::string& path, const ConfigNode& value) {
  const std::string section(section_of(path));
  const std::vector<std::string_view> names = names_in(section);
  std::string near;
  if (value.kind == ConfigNode::Kind::table || section.empty()) near = nearest_name(path, names);
  if (near.empty()) near = nearest_key(path);
  std::string text = fmt::format("got unknown key {}, expected a key of {}", path,
                                 section.empty() ? "the top level" : "[" + section + "]");
  if (near.empty()) {
    text += fmt::format(" ({}); try weft config --schema", list_of(names));
  } else {
    text += fmt::format("; try {}", near);
  }
  throw UsageError(value.place, text);
}

void walk(const ConfigNode& table, const std::string& prefix, const std::string& folder,
          std::set<std::string>& seen, Config& config) {
  for (size_t i = 0; i < table.items.size(); ++i) {
    const std::string& name = table.keys[i];
    const ConfigNode& value = table.items[i];
    // No key needs quotes: a name that does is unknown, and safe to print with them.
    const std::string part = is_bare_key(name) ? name : Json(name).dump();
    const std::string path = prefix.empty() ? part : prefix + "." + part;
    if (const KeySpec* spec = find_key(path)) {
      // Tables of patterns may be given in several overrides.
      const bool patterns = path == "parallel.shard" || path == "offload.groups";
      const std::string once =
          patterns && value.keys.size() == 1 ? path + "." + value.keys.front() : path;
      if (!seen.insert(once).second) {
        throw UsageError(value.place, fmt::format("got duplicate key {}, expected every key once; "
                                                  "try removing one of the two",
                                                  once));
      }
      std::visit(Assigner(*spec, value, folder, config), spec->field);
      config.given[path] = value.place;
      continue;
    }
    if (!is_section(path)) refuse_unknown(path, value);
    if (value.kind != ConfigNode::Kind::table) {
      std::string text =
          fmt::format("got {} = {}, expected a table [{}]", path, shown(value), path);
      if (find_key(path + ".name") != nullptr) text += fmt::format("; try {}.name", path);
      throw UsageError(value.place, text);
    }
    walk(value, path, folder, seen, config);
  }
}

}  // namespace

std::string kind_text(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::boolean: return "a boolean";
    case ConfigNode::Kind::integer: return "an integer";
    case ConfigNode::Kind::number: return "a number";
    case ConfigNode::Kind::string: return "a string";
    case ConfigNode::Kind::list: return "a list";
    case ConfigNode::Kind::table: return "a table";
    case ConfigNode::Kind::other: break;
  }
  return node.string;
}

void assign(const ConfigNode& root, const std::string& folder, std::set<std::string>& seen,
            Config& config) {
  walk(root, "", folder, seen, config);
}

}  // namespace weft
