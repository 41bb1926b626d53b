// How a run uses its cold tier: the size of a request and how many are under way, measured on the
// folder once per run folder and the same on all ranks.
#pragma once

#include <string>

#include "weft/comm/communicator.h"
#include "weft/config/config.h"
#include "weft/io/cold/cold_options.h"
#include "weft/plan/plan.h"

namespace weft {

struct ColdSetup {
  /// File that keeps what was measured, for later runs on the same folders; "" = measure nothing
  /// and use the values of `options`.
  std::string record;
  /// What the configuration does not say. Folders, bytes, rank and run are those of the job. Tests
  /// put engines of their own here.
  ColdOptions options;
};

/// Tiers below this are not worth a measurement: bytes.
inline constexpr int64_t kMeasuredTier = int64_t{256} << 20;

/// Options of the cold tier for a job with `plan`; no folders when the configuration has none. The
/// first rank measures its first folder for two seconds, or reads what was measured before. Where
/// that is not possible, the values of `setup` stay, with a note in the log. Called by all ranks.
ColdOptions settle_cold(const Config& config, const Plan& plan, const ColdSetup& setup,
                        Communicator& ranks);

}  // namespace weft
