// What the ranks of one machine share: its cores and its memory.
#pragma once

#include <cstdint>
#include <optional>

#include "weft/comm/launch.h"
#include "weft/config/config.h"
#include "weft/plan/plan.h"

namespace weft {

/// Worker threads per rank: device.threads, or the usable cores divided among the ranks of a
/// machine that share them, the smallest such share of all ranks. Called by all ranks.
int agree_threads(const DeviceConfig& device, Communicator& ranks);
/// Same before there are ranks, for a plan: all ranks on this machine, or as many as the launcher
/// has put here.
int planned_threads(const DeviceConfig& device, int world, const Launch& launch);

/// Refuses plans that together do not fit into the free memory of a machine, its control group or
/// the limits of a process (ResourceError on all ranks, with the numbers of the first such
/// machine). Called by all ranks, before they allocate.
void require_memory(const Plan& plan, Communicator& ranks);

/// memory.host, or for "auto" with a limited device and a cold tier behind it: what the tightest
/// machine may give, so that the rest goes to NVMe instead of being refused. Unset = no limit.
/// Called by all ranks.
std::optional<int64_t> agree_host_budget(const Config& config, Communicator& ranks);

}  // namespace weft
