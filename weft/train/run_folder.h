// The run folder (--out): names of its files, and the writers that fill it during a run.
#pragma once

#include <optional>
#include <string>

#include "weft/train/job.h"
#include "weft/train/metrics.h"
#include "weft/train/tensorboard.h"

namespace weft {

struct RunPaths {
  explicit RunPaths(std::string run_folder) : folder(std::move(run_folder)) {}

  std::string folder;
  std::string config() const { return folder + "/config.toml"; }
  std::string plan_json() const { return folder + "/plan.json"; }
  std::string plan_text() const { return folder + "/plan.txt"; }
  std::string metrics() const { return folder + "/metrics.jsonl"; }
  std::string cold() const { return folder + "/cold.json"; }
  std::string log() const { return folder + "/log.txt"; }
  std::string checkpoints() const { return folder + "/checkpoints"; }
  std::string tensorboard() const { return folder + "/tensorboard"; }
  std::string trace() const { return folder + "/trace"; }
};

/// Makes the folder for a new run; UsageError when it already holds one.
void create_run_folder(FileSystem& files, const RunPaths& paths);
/// Writes config.toml, plan.json and plan.txt.
void write_run_files(FileSystem& files, const RunPaths& paths, const Job& job);

/// metrics.jsonl and TensorBoard behind one set of calls.
class RunRecorder {
 public:
  /// `first_step` > 1 marks a resume in the event file.
  RunRecorder(const RunPaths& paths, bool tensorboard, int64_t first_step);

  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void event(EventKind kind, int64_t step, Json members = nullptr);

 private:
  MetricsWriter metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
};

}  // namespace weft
