// What a row of the schema says in words, and the value it points at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/config/schema.h"

namespace weft {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json policy_json(const OffloadPolicy& policy) {
  if (policy.fractions.empty()) return policy.tier;
  Json json = Json::object();
  for (const auto& [tier, part] : policy.fractions) json.set(tier, part);
  return json;
}

Json shard_json(const std::vector<ShardStrategy>& shard) {
  Json json = Json::object();
  for (const ShardStrategy& entry : shard) {
    Json value = Json::object();
    if (!entry.strategy.empty()) value.set("strategy", entry.strategy);
    for (const auto& [operand, axes] : entry.operands) value.set(operand, Json(axes));
    json.set(entry.pattern, std::move(value));
  }
  return json;
}

Json groups_json(const std::vector<std::pair<std::string, std::string>>& groups) {
  Json json = Json::object();
  for (const auto& [pattern, tier] : groups) json.set(pattern, tier);
  return json;
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string joined(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, " | "));
}

}  // namespace

bool Range::contains(double value) const {
  if (std::isnan(value)) return false;
  if (low_open ? value <= low : value < low) return false;
  return high_open ? value < high : value <= high;
}

std::string Range::text() const {
  const bool has_low = std::isfinite(low);
  const bool has_high = std::isfinite(high);
  if (!has_low && !has_high) return "";
  if (!has_high) return fmt::format("{} {}", low_open ? ">" : ">=", number_text(low));
  return fmt::format("{} {} x {} {}", number_text(low),
                     low_open ? "<" : "<=", high_open ? "<" : "<=", number_text(high));
}

std::string type_text(const KeySpec& spec) {
  const std::string base = std::visit(
      Overload{
          [](bool& (*)(Config&)) { return "boolean"; },
          [](std::optional<bool>& (*)(Config&)) { return "boolean"; },
          [](int64_t& (*)(Config&)) { return "integer"; },
          [](uint64_t& (*)(Config&)) { return "integer"; },
          [&](std::optional<int64_t>& (*)(Config&)) { return spec.bytes ? "size" : "integer"; },
          [](double& (*)(Config&)) { return "number"; },
          [](std::optional<double>& (*)(Config&)) { return "number"; },
          [](std::string& (*)(Config&)) { return "string"; },
          [](std::optional<std::string>& (*)(Config&)) { return "string"; },
          [](std::vector<std::string>& (*)(Config&)) { return "list of strings"; },
          [](std::vector<double>& (*)(Config&)) { return "list of numbers"; },
          [](std::vector<int64_t>& (*)(Config&)) { return "list of integers"; },
          [](std::optional<Json>& (*)(Config&)) { return "table"; },
          [](OffloadPolicy& (*)(Config&)) { return "string or table of fractions"; },
          [](std::vector<ShardStrategy>& (*)(Config&)) { return "table of shards"; },
          [](std::vector<std::pair<std::string, std::string>>& (*)(Config&)) {
            return "table of strings";
          },
          [](OptimizerConfig& (*)(Config&)) { return "list of 2 numbers"; },
      },
      spec.field);
  return spec.automatic ? base + " or \"auto\"" : base;
}

std::string range_text(const KeySpec& spec) {
  return spec.choices.empty() ? spec.range.text() : joined(spec.choices);
}

Json key_value(const KeySpec& spec, const Config& config) {
  auto& c =
      const_cast<Config&>(config);  // accessors are shared with the parser; nothing is written
  const auto plain = [&](auto* get) -> Json { return get(c); };
  Json json = std::visit(
      Overload{
          [&](bool& (*get)(Config&)) { return plain(get); },
          [&](int64_t& (*get)(Config&)) {
            return spec.unset_zero && get(c) == 0 ? Json() : Json(get(c));
          },
          [&](uint64_t& (*get)(Config&)) { return plain(get); },
          [&](double& (*get)(Config&)) { return plain(get); },
          [&](std::string& (*get)(Config&)) {
            return spec.unset_zero && get(c).empty() ? Json() : Json(get(c));
          },
          [&](std::optional<bool>& (*get)(Config&)) { return optional_json(get(c)); },
          [&](std::optional<int64_t>& (*get)(Config&)) { return optional_json(get(c)); },
          [&](std::optional<double>& (*get)(Config&)) { return optional_json(get(c)); },
          [&](std::optional<std::string>& (*get)(Config&)) { return optional_json(get(c)); },
          [&](std::vector<std::string>& (*get)(Config&)) { return plain(get); },
          [&](std::vector<double>& (*get)(Config&)) { return plain(get); },
          [&](std::vector<int64_t>& (*get)(Config&)) { return plain(get); },
          [&](std::optional<Json>& (*get)(Config&)) { return optional_json(get(c)); },
          [&](OffloadPolicy& (*get)(Config&)) { return policy_json(get(c)); },
          [&](std::vector<ShardStrategy>& (*get)(Config&)) { return shard_json(get(c)); },
          [&](std::vector<std::pair<std::string, std::string>>& (*get)(Config&)) {
            return groups_json(get(c));
          },
          [&](OptimizerConfig& (*get)(Config&)) {
            return Json(Json::Array{get(c).beta1, get(c).beta2});
          },
      },
      spec.field);
  return json.is_null() && spec.automatic ? Json("auto") : json;
}

bool key_applies(const KeySpec& spec, const Config& config) {
  if (!spec.only_auto.empty() && !key_value(*find_key(spec.only_auto), config).is_string()) {
    return false;  // a number instead
  }
  if (spec.only.key.empty()) return true;
  const Json value = key_value(*find_key(spec.only.key), config);
  const std::string text = value.is_null() ? "" : value.as_string();
  return std::find(spec.only.values.begin(), spec.only.values.end(), text) !=
         spec.only.values.end();
}

}  // namespace weft
