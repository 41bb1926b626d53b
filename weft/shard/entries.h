// Strategies that are given: by the user in [parallel.shard] or by a family's default.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/config/config.h"
#include "weft/shard/mesh.h"
#include "weft/shard/strategy.h"

namespace weft {

/// Axes per dim of each named operand of the operator at a module. "weight" dims are (in, out),
/// like the operands of a matmul, whatever the file layout; (experts, in, out) for experts.
struct ShardEntry {
  std::string pattern;  // Hugging Face module name, * matches any text
  std::map<std::string, std::vector<std::string>> operands;
  int64_t block = 1;  // elements of the cut weight dim that stay together
};

/// Does `pattern` match the module `name`? "#q" and the like of fused tensors are left out.
bool matches_module(std::string_view pattern, std::string_view name);

/// The user's entries. UsageError naming pattern and dim for an unknown axis or malformed tuple.
std::vector<ShardEntry> parse_entries(const std::vector<ShardStrategy>& given, const Mesh& mesh);

/// The strategy an entry gives to a node. UsageError when operands contradict each other (a
/// contraction cut on one side only, a wrong number of dims, an operand the operator lacks).
NodeStrategy entry_strategy(const ShardEntry& entry, const Node& node, const NodeView& view,
                            const Mesh& mesh);

}  // namespace weft
