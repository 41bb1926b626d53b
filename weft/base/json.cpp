#include "weft/base/json.h"

#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kMaxDepth = 256;

/// Builds a Json from parse events and refuses what the DOM parser would let pass.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return open(Json::object());
  }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) return fail("duplicate key \"" + value + "\"");
    names_.push_back(std::move(value));
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (error.empty()) {
      const size_t end = std::min(position == 0 ? 0 : position - 1, text_.size());
      const std::string_view before = text_.substr(0, end);
      const size_t line = 1 + std::count(before.begin(), before.end(), '\n');
      const size_t start = before.rfind('\n');
      const size_t column = start == std::string_view::npos ? end + 1 : end - start;
      error = fmt::format("invalid JSON at line {} column {}", line, column);
    }
    return false;
  }

  Json root;
  std::string error;

 private:
  bool fail(std::string message) {
    error = std::move(message);
    return false;
  }
  bool add(Json value) {
    if (stack_.empty()) {
      root = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().push(std::move(value));
    } else {
      append_member(std::move(value));
    }
    return true;
  }
  void append_member(Json value) {
    // Keys are unique already, so append without the search of Json::set.
    const_cast<Json::Object&>(stack_.back().as_object())
        .emplace_back(std::move(names_.back()), std::move(value));
    names_.pop_back();
  }
  bool open(Json container) {
    if (stack_.size() >= kMaxDepth) return fail("nesting deeper than 256");
    stack_.push_back(std::move(container));
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    return add(std::move(done));
  }

  std::string_view text_;
  std::vector<Json> stack_;
  std::vector<std::string> names_;
  std::vector<std::unordered_set<std::string>> keys_;
};

void write_string(std::string& out, const std::string& text) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"nan\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".eE") == std::string::npos) text += ".0";
    out += text;
  }
}

const char* type_text(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_bool()) return "a boolean";
  if (json.is_int()) return "an integer";
  if (json.is_number()) return "a number";
  if (json.is_string()) return "a string";
  return json.is_array() ? "an array" : "an object";
}

[[noreturn]] void wrong_type(const Json& json, const char* expected) {
  throw InputError("json", fmt::format("got {}, expected {}", type_text(json), expected));
}

void write(std::string& out, const Json& json, int indent, int depth) {
  const auto line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  if (json.is_null()) {
    out += "null";
  } else if (json.is_bool()) {
    out += json.as_bool() ? "true" : "false";
  } else if (json.is_int()) {
    out += std::to_string(json.as_int());
  } else if (json.is_number()) {
    write_double(out, json.as_double());
  } else if (json.is_string()) {
    write_string(out, json.as_string());
  } else if (json.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : json.as_array()) {
      if (!first) out += ',';
      first = false;
      line(depth + 1);
      write(out, item, indent, depth + 1);
    }
    if (!first) line(depth);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : json.as_object()) {
      if (!first) out += ',';
      first = false;
      line(depth + 1);
      write_string(out, key);
      out += indent < 0 ? ":" : ": ";
      write(out, item, indent, depth + 1);
    }
    if (!first) line(depth);
    out += '}';
  }
}

}  // namespace

Json::Json(uint64_t value) {
  if (value > static_cast<uint64_t>(INT64_MAX)) {
    value_ = static_cast<double>(value);
  } else {
    value_ = static_cast<int64_t>(value);
  }
}

bool Json::as_bool() const {
  if (!is_bool()) wrong_type(*this, "a boolean");
  return std::get<bool>(value_);
}

int64_t Json::as_int() const {
  if (!is_int()) wrong_type(*this, "an integer");
  return std::get<int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) wrong_type(*this, "a number");
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_type(*this, "a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_type(*this, "an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_type(*this, "an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : std::get<Object>(value_)) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw InputError("json", fmt::format("member \"{}\" is missing", key));
  return *found;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  as_object();
  auto& members = std::get<Object>(value_);
  for (auto& [name, old] : members) {
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  }
  members.emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (is_null()) value_ = Array{};
  as_array();
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, *this, indent, 0);
  return out;
}

Json parse_json(std::string_view text, std::string_view where) {
  Builder builder(text);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!complete || !builder.error.empty()) {
    throw InputError(where, builder.error.empty() ? "invalid JSON" : builder.error);
  }
  return std::move(builder.root);
}

Json read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path, "cannot be read; try checking the path");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), path);
}

}  // namespace weft
