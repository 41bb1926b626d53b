#include "weft/compile/layer_of.h"

#include <charconv>

namespace weft {

int64_t layer_of(std::string_view scope) {
  while (!scope.empty()) {
    const size_t dot = scope.find('.');
    const std::string_view part = scope.substr(0, dot);
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (error == std::errc() && end == part.data() + part.size() && layer >= 0) return layer;
    if (dot == std::string_view::npos) break;
    scope.remove_prefix(dot + 1);
  }
  return kNoLayer;
}

}  // namespace weft
