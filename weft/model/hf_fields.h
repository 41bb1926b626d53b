// Access to the fields of a config.json. Internal to model/.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {

/// Field access with defaults; null counts as absent.
class HfFields {
 public:
  HfFields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const Json* find(const char* key) const {
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  int64_t integer(const char* key) const { return read_int(key, at(key)); }
  int64_t integer(const char* key, int64_t otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? otherwise : read_int(key, *value);
  }
  double number(const char* key, double otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) wrong(key, "a number");
    return value->as_double();
  }
  bool boolean(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) wrong(key, "true or false");
    return value->as_bool();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(key, "a string");
    return value->as_string();
  }
  const Json& at(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) {
      throw InputError(where_, fmt::format("got no field {}, expected one", key));
    }
    return *value;
  }
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    throw InputError(where_,
                     fmt::format("field {}: got {}, expected {}", key, at(key).dump(), expected));
  }

 private:
  int64_t read_int(const char* key, const Json& value) const {
    if (!value.is_int()) wrong(key, "an integer");
    return value.as_int();
  }

  const Json& json_;
  std::string where_;
};

}  // namespace weft
