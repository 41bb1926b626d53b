// Which layer of the model a scope lies in.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

inline constexpr int64_t kNoLayer = -1;

/// The first integer component of a dotted module name: 3 for "model.layers.3.mlp.up_proj",
/// kNoLayer for "model.norm" and for the empty scope.
int64_t layer_of(std::string_view scope);

}  // namespace weft
