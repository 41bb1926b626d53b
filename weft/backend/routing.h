// The decisions of the router, the same in every backend: which experts a token goes to, and which
// row each of its copies has. Ties go to the lowest index. docs/moe.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "weft/ir/kernel.h"

namespace weft {

struct RoutingShape {
  int64_t sequences, length, experts, top_k, capacity, groups, top_groups;

  RoutingShape(const Attrs& attrs, const Shape& x, int64_t num_experts)
      : sequences(x[0]),
        length(x[1]),
        experts(num_experts),
        top_k(attrs.get_int("top_k")),
        capacity(attrs.get_int("capacity", 0)),
        groups(attrs.get_int("groups", 1)),
        top_groups(attrs.get_int("top_groups", groups)) {}
};

/// Index of the largest entry that is not `taken`, the lowest of equal ones. A NaN never wins; with
/// nothing else left the lowest free index does.
template <class P>
int64_t largest(const P* values, const bool* taken, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (taken[i]) continue;
    if (best < 0 || values[i] > values[best] ||
        (std::isnan(values[best]) && !std::isnan(values[i])))
      best = i;
  }
  return best;
}

/// Marks the experts of groups that lose: a group scores by its two best experts (DeepSeek-V3).
template <class P>
void drop_groups(const P* choice, const RoutingShape& shape, bool* taken, P* group_scores,
                 bool* group_taken) {
  const int64_t size = shape.experts / shape.groups;
  for (int64_t g = 0; g < shape.groups; ++g) {
    const P* scores = choice + g * size;
    std::fill(taken, taken + size, false);
    const int64_t first = largest(scores, taken, size);
    taken[first] = true;
    const int64_t second = size > 1 ? largest(scores, taken, size) : -1;
    group_scores[g] = scores[first] + (second < 0 ? P(0) : scores[second]);
    group_taken[g] = false;
  }
  std::fill(taken, taken + shape.experts, true);
  for (int64_t i = 0; i < shape.top_groups; ++i) {
    const int64_t g = largest(group_scores, group_taken, shape.groups);
    group_taken[g] = true;
    std::fill(taken + g * size, taken + (g + 1) * size, false);
  }
}

/// The experts of one token, best first. `choice` [E] are the scores they are chosen by; `taken`
/// [2E] and `group_scores` [E] are scratch.
template <class P>
void choose_experts(const P* choice, const RoutingShape& shape, bool* taken, P* group_scores,
                    int32_t* experts) {
  std::fill(taken, taken + shape.experts, false);
  if (shape.groups > 1) {
    drop_groups(choice, shape, taken, group_scores, taken + shape.experts);
  }
  for (int64_t j = 0; j < shape.top_k; ++j) {
    const int64_t e = largest(choice, taken, shape.experts);
    taken[e] = true;
    experts[j] = static_cast<int32_t>(e);
  }
}

/// Rows of the copies of one sequence of `tokens` real tokens: slots [S,K] (-1 = no row), counts
/// [E] of rows kept. Earlier tokens come first; with a capacity later ones lose their row. Returns
/// the assignments dropped. `load` [E] gets all assignments.
inline int64_t assign_slots(const int32_t* experts, const RoutingShape& shape, int64_t tokens,
                            int32_t* slots, int32_t* counts, int64_t* load) {
  const int64_t K = shape.top_k;
  std::fill(load, load + shape.experts, int64_t{0});
  for (int64_t i = 0; i < tokens * K; ++i) ++load[experts[i]];
  int64_t dropped = 0, offset = 0;
  for (int64_t e = 0; e < shape.experts; ++e) {
    counts[e] = static_cast<int32_t>(shape.capacity > 0 ? shape.capacity * e : offset);
    offset += load[e];
  }
  // counts run as the next free slot of each expert.
  for (int64_t i = 0; i < shape.length * K; ++i) {
    slots[i] = -1;
    if (i >= tokens * K) continue;
    const int64_t e = experts[i];
    if (shape.capacity > 0 && counts[e] == shape.capacity * (e + 1)) {
      ++dropped;
    } else {
      slots[i] = counts[e]++;
    }
  }
  for (int64_t e = 0; e < shape.experts; ++e) {
    counts[e] =
        static_cast<int32_t>(shape.capacity > 0 ? std::min(load[e], shape.capacity) : load[e]);
  }
  return dropped;
}

}  // namespace weft
