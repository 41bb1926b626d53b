// The standard cut of each model family: columns then rows, heads over op, the vocabulary over op.
#pragma once

#include <vector>

#include "weft/config/config.h"
#include "weft/model/model_spec.h"
#include "weft/shard/entries.h"

namespace weft {

/// Mesh of a configuration: data outside, op inside.
Mesh make_mesh(const ParallelConfig& parallel);

/// The user's entries, then the family's. strategy = "manual": UsageError naming the modules with
/// weights that have no entry. UsageError with the numbers when op exceeds the key/value heads that
/// a default would cut.
std::vector<ShardEntry> shard_entries(const Config& config, const ModelSpec& spec,
                                      const Mesh& mesh);
/// The family's alone.
std::vector<ShardEntry> default_entries(const ModelSpec& spec);

}  // namespace weft
