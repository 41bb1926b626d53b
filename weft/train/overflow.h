// What can be said about a step that was not applied, from the outputs of program "train".
#pragma once

#include <string>

#include "weft/runtime/session.h"
#include "weft/train/metrics.h"

namespace weft {

/// The parameter nearest to the loss whose gradient is not finite: where the backward pass, or what
/// it was given, went wrong first. "" when all are finite. The same on every rank.
std::string overflowed_tensor(Session& session);

/// This rank brought values that are not finite into sums with other ranks, or has them where such
/// sums are none.
bool overflowed_here(Session& session);

/// One clause for people: "in the backward pass, gradient of model.norm.weight, rank 1".
std::string overflow_text(const Overflow& overflow);

/// Weights that have lost values when they were rounded to the compute dtype, as "…weight holds 3
/// infinite values"; "" when there are none. Reads every weight of this rank.
std::string overflowed_weights(Session& session);

}  // namespace weft
