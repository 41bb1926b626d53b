// What may change between a checkpoint and the run that continues it.
#pragma once

#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/config/config.h"

namespace weft {

struct ConfigChange {
  std::string key;  // "optimizer.lr"
  std::string before;
  std::string after;
  bool allowed = false;  // takes effect on resume
};

/// Every key whose value differs between two effective configurations (config_json).
std::vector<ConfigChange> config_changes(const Json& before, const Json& after);

/// Logs each change; UsageError listing those that a resumed run cannot honour (architecture,
/// data, seed, batch, sequence length: they would change what the saved position and states mean).
void check_resume_config(const Json& before, const Config& config);

}  // namespace weft
