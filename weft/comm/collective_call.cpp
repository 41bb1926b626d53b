#include "weft/comm/collective_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/comm/combine.h"

namespace weft {
namespace {

const char* kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::all_to_all: return "all_to_all";
  }
  return "collective";
}

/// Elements of the logical tensor, the same on every member.
int64_t logical_elements(const CollectiveSpec& spec, const CollectiveTensor& tensor) {
  if (spec.kind != CollectiveKind::all_to_all) return tensor.view.elements();
  const CutPiece last = tensor.gathered.back();
  return tensor.view.extent * (last.begin + last.size) * tensor.before * tensor.between *
         tensor.behind;
}

}  // namespace

CollectiveCall collective_call(const KernelSpec& spec, std::span<const int32_t> group, int rank,
                               int world) {
  CollectiveCall call;
  call.spec = collective_spec(spec);
  call.group.assign(group.begin(), group.end());
  const auto index = static_cast<size_t>(call.spec.index);
  WEFT_CHECK(call.spec.ways == static_cast<int>(group.size()) && group[index] == rank, "comm",
             "rank {} prepares member {} of {} of the group {}", rank, index, call.spec.ways,
             fmt::join(group, ", "));
  WEFT_CHECK(std::is_sorted(group.begin(), group.end()) &&
                 std::adjacent_find(group.begin(), group.end()) == group.end() &&
                 group.front() >= 0 && group.back() < world,
             "comm", "got the group {} of {} ranks", fmt::join(group, ", "), world);
  const bool reduces = call.spec.kind == CollectiveKind::all_reduce ||
                       call.spec.kind == CollectiveKind::reduce_scatter;
  WEFT_CHECK(!reduces || can_combine(call.spec.dtype, call.spec.reduction), "comm",
             "cannot reduce {} by {}", dtype_name(call.spec.dtype),
             call.spec.reduction == Reduction::sum ? "sum" : "logsumexp");
  call.element_bytes = dtype_size(call.spec.dtype);
  call.name = fmt::format("{} over axis {}", kind_name(call.spec.kind), call.spec.axis);
  call.signature = fmt::format("{} of {}{}", call.name, dtype_name(call.spec.dtype),
                               call.spec.reduction == Reduction::sum ? "" : " logsumexp");
  for (const CollectiveTensor& tensor : call.spec.tensors) {
    const int64_t elements = logical_elements(call.spec, tensor);
    call.logical_elements += elements;
    call.signature += fmt::format(" {}", elements);
  }
  return call;
}

std::string ranks_text(std::span<const int32_t> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string stall_cause(std::span<const int32_t> missing, const std::string& what, double seconds) {
  return fmt::format(
      "[comm] got no answer from {} in {} for {} s, expected all ranks to take part; try looking "
      "at what {} last logged, or a larger limit",
      ranks_text(missing), what, seconds, missing.size() == 1 ? "it" : "they");
}

}  // namespace weft
