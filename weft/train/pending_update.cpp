#include "weft/train/pending_update.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/compile/late_update.h"
#include "weft/train/feed.h"

namespace weft {

PendingUpdate::PendingUpdate(Session& session) : session_(session) {
  const Plan& plan = session.plan();
  const auto has = [&](std::string_view name) {
    return std::any_of(plan.programs.begin(), plan.programs.end(),
                       [&](const PlanProgram& program) { return program.name == name; });
  };
  late_ = has("flush");
  reads_ahead_ = has("prime");
  primed_ = !reads_ahead_;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const PlanState& state = plan.states[i];
    if (!state.name.ends_with(kPendingSuffix)) continue;
    const std::vector<std::byte> zeros(static_cast<size_t>(state.type.bytes()));
    session.write_state(static_cast<int>(i), zeros.data());
  }
}

void PendingUpdate::feed(const std::vector<double>& hyper, int64_t step) {
  write("train", late_ ? hyper_ : hyper, late_ ? step_ : step);
  hyper_ = hyper;
  step_ = step;
  waits_ = true;
  if (!primed_) session_.run("prime");
  primed_ = true;
}

void PendingUpdate::flush() {
  if (!late_ || !waits_) return;
  write("flush", hyper_, step_);
  session_.run("flush");
  primed_ = !reads_ahead_;
  clear_verdict();
  waits_ = false;
}

void PendingUpdate::write(std::string_view program, const std::vector<double>& hyper,
                          int64_t step) {
  feed_scalars(session_, program, "hyper", hyper);
  if (session_.has_input(program, "update_step")) {
    session_.set_input(program, "update_step", &step, sizeof(step));
  }
}

/// The next step must not apply the update again.
void PendingUpdate::clear_verdict() {
  const std::vector<PlanState>& states = session_.plan().states;
  const auto found = std::find_if(states.begin(), states.end(), [](const PlanState& state) {
    return state.name == kPendingApply;
  });
  WEFT_CHECK(found != states.end(), "train", "the plan has no state {}", kPendingApply);
  const int32_t none = 0;
  WEFT_CHECK(found->type.bytes() == sizeof(none), "train", "state {} has {} bytes", kPendingApply,
             found->type.bytes());
  session_.write_state(static_cast<int>(found - states.begin()), &none);
}

}  // namespace weft
