// A collective as communicators prepare it: its meaning, its group and its name in messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/ops/collective.h"

namespace weft {

struct CollectiveCall {
  CollectiveSpec spec;
  std::vector<int32_t> group;  // world ranks of the members
  int64_t element_bytes = 0;
  int64_t logical_elements = 0;  // of all tensors, the same on every member
  std::string name;              // "all_reduce over axis op": for people
  /// Equal on all members that run the same collective: kind, dtype, reduction, sizes.
  std::string signature;

  size_t tensors() const { return spec.tensors.size(); }
  int members() const { return spec.ways; }
};

/// BugError when the group does not fit the kernel, or `rank` is not the member it says.
CollectiveCall collective_call(const KernelSpec& spec, std::span<const int32_t> group, int rank,
                               int world);

/// "rank 3" or "ranks 0, 3".
std::string ranks_text(std::span<const int32_t> ranks);
/// The cause of a stall: `missing` did not come to `what`.
std::string stall_cause(std::span<const int32_t> missing, const std::string& what, double seconds);

}  // namespace weft
