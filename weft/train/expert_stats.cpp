#include "weft/train/expert_stats.h"

#include <vector>

#include "weft/compile/step_graph.h"
#include "weft/train/feed.h"

namespace weft {

void read_expert_stats(Session& session, const ModelSpec& spec, int64_t sequences,
                       StepRecord& record) {
  if (spec.family != Family::moe) return;
  const auto experts = static_cast<size_t>(spec.moe.num_experts);
  double balance = 0;
  record.has_experts = true;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (!is_sparse(spec, layer)) continue;
    const std::vector<double> stats = read_values(session, "train", router_stats_output(layer));
    auto& tokens = record.expert_tokens.emplace_back();
    for (size_t e = 0; e < experts; ++e) tokens.push_back(static_cast<int64_t>(stats[e]));
    record.dropped_tokens += static_cast<int64_t>(stats[experts]);
    balance += stats[experts + 1];
  }
  record.aux_loss = balance * aux_share(spec, sequences);
}

}  // namespace weft
