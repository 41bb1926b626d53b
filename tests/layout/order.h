// Do the collectives of all ranks fit together?
#pragma once

#include <string>
#include <vector>

#include "weft/plan/plan.h"

namespace weft::test {

/// Differences between the collectives of the ranks: members of a group must make the same calls in
/// the same order, and no group may wait for another that waits for it. Empty when all is well.
std::vector<std::string> order_faults(const std::vector<Plan>& plans);

}  // namespace weft::test
