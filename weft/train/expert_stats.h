// What the routers of a step say, for the metrics.
#pragma once

#include <cstdint>

#include "weft/model/model_spec.h"
#include "weft/runtime/session.h"
#include "weft/train/metrics.h"

namespace weft {

/// Fills the members on experts of `record` from the outputs of the last run of program "train" on
/// `sequences` sequences; nothing for a model without experts.
void read_expert_stats(Session& session, const ModelSpec& spec, int64_t sequences,
                       StepRecord& record);

}  // namespace weft
