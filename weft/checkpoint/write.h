// Writing the files of one checkpoint folder.
#pragma once

#include <string>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/logical.h"
#include "weft/io/safetensors.h"

namespace weft {

/// Refuses at once what cannot fit; the writes themselves are checked as well.
void require_space(FileSystem& files, const std::string& root, int64_t needed);

/// Writes tensor files, then the manifest, into an existing folder; every file is synced. With
/// `finite`, throws AlarmError at the first value that is not.
void write_checkpoint(FileSystem& files, const std::string& folder,
                      const std::vector<LogicalGroup>& groups, StateBytes& source,
                      const CheckpointMeta& meta, bool finite);

}  // namespace weft
