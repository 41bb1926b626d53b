#include "weft/train/overflow.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "weft/compile/passes.h"
#include "weft/optim/optimizer.h"
#include "weft/train/feed.h"

namespace weft {
namespace {

bool is_finite(Session& session, const std::string& output) {
  return std::isfinite(read_scalar(session, "train", output));
}

}  // namespace

std::string overflowed_tensor(Session& session) {
  const auto& outputs = session.plan().program("train").outputs;
  const std::vector<PlanState>& states = session.plan().states;
  // States stand in the order of the forward pass.
  const auto found = std::find_if(states.rbegin(), states.rend(), [&](const PlanState& state) {
    const std::string sum = kSumOutput + state.name;
    return outputs.contains(sum) && !is_finite(session, sum);
  });
  return found == states.rend() ? "" : found->name;
}

bool overflowed_here(Session& session) {
  const auto& outputs = session.plan().program("train").outputs;
  bool probed = false;
  for (auto at = outputs.lower_bound(kOwnProbe); at != outputs.end(); ++at) {
    if (!at->first.starts_with(kOwnProbe)) break;
    probed = true;
    if (!is_finite(session, at->first)) return true;
  }
  return !probed && !overflowed_tensor(session).empty();
}

std::string overflow_text(const Overflow& overflow) {
  std::string text = fmt::format("in the {} pass", overflow.pass);
  if (!overflow.tensor.empty()) text += ", gradient of " + overflow.tensor;
  if (overflow.rank >= 0) text += fmt::format(", rank {}", overflow.rank);
  return text;
}

std::string overflowed_weights(Session& session) {
  const std::vector<PlanState>& states = session.plan().states;
  for (size_t i = 0; i < states.size(); ++i) {
    const PlanState& state = states[i];
    if (state.role != StateRole::weight || state.type.dtype == DType::f32) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(state.type.bytes()));
    session.read_state(static_cast<int>(i), bytes.data());
    int64_t lost = 0;
    for (int64_t e = 0; e < state.type.elements(); ++e) {
      lost += std::isfinite(load_element(bytes.data(), state.type.dtype, e)) ? 0 : 1;
    }
    if (lost > 0) {
      return fmt::format("{} holds {} values beyond the range of {}", state.name, lost,
                         dtype_name(state.type.dtype));
    }
  }
  return "";
}

}  // namespace weft
