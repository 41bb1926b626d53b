// What a run tells the world: run folder, log, metrics, TensorBoard, progress, alarms, report. The
// first rank speaks for all; on the others every call does nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/file.h"
#include "weft/train/alarm.h"
#include "weft/train/job.h"
#include "weft/train/progress.h"
#include "weft/train/run_folder.h"

namespace weft {

class RunReporter {
 public:
  RunReporter(FileSystem& files, RunPaths paths, bool speaks);
  ~RunReporter();
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  /// The run folder exists from here on: log lines go to its file.
  void open_log();
  /// Writes configuration and plan, notes the start. `job` must outlive the reporter; `done` steps
  /// lie behind; `checkpoint` is where they come from, "" for a fresh run.
  void begin(const Job& job, int64_t done, const std::string& checkpoint,
             const std::string& command);

  /// What goes on between steps; "" = training.
  void phase(std::string_view text);
  void step(const StepRecord& record);
  /// On every rank, which writes a file of its own.
  void trace(const Job& job, int64_t step, const std::vector<TraceEvent>& events) const;
  void eval(const EvalRecord& record);
  void saved(int64_t step, const std::string& path);
  /// Logs a finding that is no alarm.
  void note(const AlarmFinding& finding);
  /// Logs and records the finding and runs the alarm command.
  void alarm(int64_t step, const AlarmFinding& finding);
  /// Notes the end and writes the report.
  void end(int64_t step, const std::string& outcome);

 private:
  void log_facts(const Job& job) const;

  FileSystem& files_;
  const RunPaths paths_;
  const bool speaks_;
  const Job* job_ = nullptr;
  std::unique_ptr<RunRecorder> recorder_;
  std::optional<Progress> progress_;
};

}  // namespace weft
