// SIGINT and SIGTERM as a request: the trainer finishes its step, saves and exits with code 75. A
// second signal ends the process at once with 128 + its number.
#pragma once

namespace weft {

/// Installs the handlers while any of them lives; each rank of a process may have one.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Number of the signal received, 0 for none. Any thread.
  static int received();
};

}  // namespace weft
