// What checkpoints need from whoever holds the training state: a list of states and access to
// their bytes. A Session is one through SessionStore (session_store.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/runtime/state_init.h"

namespace weft {

class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual const std::vector<PlanState>& states() const = 0;
  /// Copies a whole state out or in, in the state's own dtype; `index` as in states(). Not called
  /// for states without elements.
  virtual void read_state(int index, void* data) = 0;
  virtual void write_state(int index, const void* data) = 0;
  /// Recomputes the states of kind copy whose source holds the same piece; called once after a
  /// load. The others were written by the load itself, from the logical tensor.
  virtual void refresh_copies() = 0;
};

/// True for states that files hold: all but the converted copies of others and those that only wait
/// for the next update and belong to no logical tensor.
inline bool is_stored(const PlanState& state) {
  return state.init.kind != StateInit::Kind::copy && !state.logical.name.empty();
}
/// Name of the logical tensor in a checkpoint: the Hugging Face name, "@m" etc. added for slots.
inline std::string stored_name(const PlanState& state) {
  return state.slot.empty() ? state.logical.name : state.logical.name + "@" + state.slot;
}
/// Host bytes of a snapshot of all stored states.
int64_t snapshot_bytes(const std::vector<PlanState>& states);
inline int64_t snapshot_bytes(const Plan& plan) { return snapshot_bytes(plan.states); }

}  // namespace weft
