// What the user sees of a run: on a terminal a bar at the bottom of stderr, in a pipe one line per
// step. The lines always go to the log file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/train/metrics.h"

namespace weft {

struct ProgressOptions {
  int64_t total_steps = 0;
  int64_t first_step = 1;  // first step of this process
  int64_t log_every = 1;   // one line per so many steps in a pipe; the last step always
};

/// One at a time per process. Log lines of any thread and the bar do not tear each other; the
/// calls below belong to one thread, outside any log call.
class Progress {
 public:
  /// A bar when stderr is a terminal that can move its cursor, else lines.
  explicit Progress(const ProgressOptions& options);
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  /// What is going on between steps ("evaluating", "saving"); "" = training. Bar only.
  void phase(std::string_view text);

 private:
  void redraw(bool at_once);

  ProgressOptions options_;
  bool terminal_ = false;
  int64_t steps_seen_ = 0;
  double mean_ms_ = 0;
  StepRecord last_;
  std::string phase_;
};

/// "step   20/200  loss 3.1416  norm 0.512  lr 3.00e-04  12.3k tok/s  41.2 ms".
std::string step_line(const StepRecord& record, int64_t total_steps);
/// "eval at step 20  loss 1.8801  perplexity 6.554  111540 tokens".
std::string eval_line(const EvalRecord& record);
/// The bar, at most `width` columns wide. `remaining_s` < 0 = not known yet.
std::string bar_line(const StepRecord& record, int64_t total_steps, double remaining_s,
                     std::string_view phase, int width, bool color);
/// "41s", "3m05s", "2h07m", "3d04h".
std::string duration_text(double seconds);

}  // namespace weft
