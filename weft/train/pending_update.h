// The update that waits for the next step (a plan with program "flush"). Without one every call
// does the ordinary thing, so that the trainer need not know.
#pragma once

#include <vector>

#include "weft/runtime/session.h"

namespace weft {

class PendingUpdate {
 public:
  /// Nothing waits: the states of a waiting update are cleared. `session` must outlive this.
  explicit PendingUpdate(Session& session);

  /// Prepares the next run of "train", whose own update has `hyper` and the number `step`: writes
  /// inputs "hyper" and, if there, "update_step" and has the first pieces of the waiting update
  /// ready.
  void feed(const std::vector<double>& hyper, int64_t step);
  /// Applies what waits, so that the states are those after the last step. Called before anything
  /// reads them.
  void flush();

 private:
  void clear_verdict();
  void write(std::string_view program, const std::vector<double>& hyper, int64_t step);

  Session& session_;
  bool late_ = false;
  bool reads_ahead_ = false;  // the plan has a program "prime"
  bool primed_ = false;       // the first update pieces lie ready
  bool waits_ = false;
  std::vector<double> hyper_ = {0.0, 1.0, 1.0};  // of the update that waits
  int64_t step_ = 0;
};

}  // namespace weft
