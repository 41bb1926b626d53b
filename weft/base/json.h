// A small JSON value with strict parsing. The parser (nlohmann/json, seen only by json.cpp) is
// wrapped so that duplicate keys, invalid UTF-8, too deep nesting and trailing bytes are errors
// and so that heavy headers stay in one source. Objects keep insertion order. Not thread-safe for
// writes; concurrent reads are fine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value);
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  template <class T>
  Json(const std::vector<T>& values) : value_(Array(values.begin(), values.end())) {}
  static Json array() { return Json(Array{}); }
  static Json object() {
    Json json;
    json.value_ = Object{};
    return json;
  }
  static Json object(std::initializer_list<Member> members) {
    Json json;
    json.value_ = Object(members);
    return json;
  }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// Typed reads; a wrong type throws InputError naming the type found.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  /// Member `key`, or nullptr when absent or when this is not an object.
  const Json* find(std::string_view key) const;
  /// Member `key`; throws InputError when absent.
  const Json& at(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// Appends or replaces a member; turns null into an object.
  Json& set(std::string_view key, Json value);
  /// Appends an element; turns null into an array.
  Json& push(Json value);

  /// Compact text for indent < 0, else pretty-printed. Non-finite numbers become the strings
  /// "nan", "inf" and "-inf", so the text is always valid JSON. Doubles round-trip.
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// Parses one JSON document. Throws InputError "[where] …, line L column C" for invalid JSON,
/// duplicate keys, nesting deeper than 256 or trailing bytes.
Json parse_json(std::string_view text, std::string_view where);
/// Reads and parses a file; InputError names the path.
Json read_json_file(const std::string& path);

}  // namespace weft
