// A Session as a StateStore.
#pragma once

#include "weft/checkpoint/state_store.h"
#include "weft/runtime/session.h"

namespace weft {

/// `session` must outlive the store; same thread as the session.
class SessionStore : public StateStore {
 public:
  explicit SessionStore(Session& session) : session_(session) {}

  const std::vector<PlanState>& states() const override { return session_.plan().states; }
  void read_state(int index, void* data) override { session_.read_state(index, data); }
  void write_state(int index, const void* data) override { session_.write_state(index, data); }
  void refresh_copies() override { session_.refresh_copies(); }

 private:
  Session& session_;
};

}  // namespace weft
