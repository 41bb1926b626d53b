// Typed attributes of a node: a small sorted map from name to value that prints and serialises by
// itself. Operators read it through the accessors; a missing required attribute is a BugError.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

using AttrValue = std::variant<bool, int64_t, double, std::string>;

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  /// Adds or replaces.
  void set(std::string_view name, AttrValue value);
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  int64_t get_int(std::string_view name) const;
  int64_t get_int(std::string_view name, int64_t otherwise) const;
  /// Also accepts integers.
  double get_double(std::string_view name) const;
  double get_double(std::string_view name, double otherwise) const;
  bool get_bool(std::string_view name, bool otherwise) const;
  std::string get_string(std::string_view name) const;
  std::string get_string(std::string_view name, std::string_view otherwise) const;

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  const AttrValue* find(std::string_view name) const;

  std::vector<Entry> entries_;  // sorted by name
};

/// "eps=1e-05 transpose_w=true".
std::string attrs_text(const Attrs& attrs);

}  // namespace weft
