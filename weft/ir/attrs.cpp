#include "weft/ir/attrs.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

Attrs::Attrs(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void Attrs::set(std::string_view name, AttrValue value) {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view key) { return entry.first < key; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {std::string(name), std::move(value)});
  }
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

int64_t Attrs::get_int(std::string_view name) const {
  const AttrValue* value = find(name);
  WEFT_CHECK(value != nullptr && std::holds_alternative<int64_t>(*value), "attrs",
             "integer attribute {} is missing", name);
  return std::get<int64_t>(*value);
}

int64_t Attrs::get_int(std::string_view name, int64_t otherwise) const {
  return contains(name) ? get_int(name) : otherwise;
}

double Attrs::get_double(std::string_view name) const {
  const AttrValue* value = find(name);
  if (value != nullptr && std::holds_alternative<int64_t>(*value)) {
    return static_cast<double>(std::get<int64_t>(*value));
  }
  WEFT_CHECK(value != nullptr && std::holds_alternative<double>(*value), "attrs",
             "number attribute {} is missing", name);
  return std::get<double>(*value);
}

double Attrs::get_double(std::string_view name, double otherwise) const {
  return contains(name) ? get_double(name) : otherwise;
}

bool Attrs::get_bool(std::string_view name, bool otherwise) const {
  const AttrValue* value = find(name);
  if (value == nullptr) return otherwise;
  WEFT_CHECK(std::holds_alternative<bool>(*value), "attrs", "attribute {} is not a boolean", name);
  return std::get<bool>(*value);
}

std::string Attrs::get_string(std::string_view name) const {
  const AttrValue* value = find(name);
  WEFT_CHECK(value != nullptr && std::holds_alternative<std::string>(*value), "attrs",
             "string attribute {} is missing", name);
  return std::get<std::string>(*value);
}

std::string Attrs::get_string(std::string_view name, std::string_view otherwise) const {
  return contains(name) ? get_string(name) : std::string(otherwise);
}

std::string attrs_text(const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs.entries()) {
    if (!text.empty()) text += ' ';
    text += name + "=";
    text += std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
  }
  return text;
}

}  // namespace weft
