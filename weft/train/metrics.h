// metrics.jsonl: what a run reports about itself, one JSON object a line. docs/formats/metrics.md
// is the format, docs/metrics.md what the numbers mean. All numbers are those of the whole job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/io/file.h"

namespace weft {

/// Why a step was not applied: something was not finite.
struct Overflow {
  std::string pass;    // "forward" when the loss itself is not finite, else "backward"
  std::string tensor;  // parameter whose gradient is not finite; "" = unknown
  int64_t rank = -1;   // that brought it in; -1 = unknown
};

/// One training step. Times are milliseconds, sizes bytes; what a run does not have stays 0.
struct StepRecord {
  int64_t step = 0;  // global, from 1
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;
  int64_t tokens = 0;  // labels that count
  int64_t tokens_total = 0;
  int64_t samples_total = 0;
  int64_t epoch = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double mfu = 0;
  double compute_ms = 0;
  double comm_ms = 0;
  double comm_exposed_ms = 0;
  double copy_exposed_ms = 0;
  double io_exposed_ms = 0;
  double update_ms = 0;
  double data_ms = 0;
  int64_t device_peak_bytes = 0;
  int64_t host_bytes = 0;
  int64_t nvme_bytes = 0;
  int64_t nvme_read_bytes = 0;
  int64_t nvme_write_bytes = 0;

  std::optional<Overflow> overflow;  // written only when the step was not applied

  // Written only when there are experts.
  bool has_experts = false;
  double aux_loss = 0;
  std::vector<std::vector<int64_t>> expert_tokens;  // [layer][expert]
  int64_t dropped_tokens = 0;
};

struct EvalRecord {
  int64_t step = 0;  // steps done before this evaluation
  double loss = 0;
  double perplexity = 0;
  int64_t tokens = 0;
};

enum class EventKind { start, resume, checkpoint, alarm, end };
std::string_view event_name(EventKind kind);

/// Start, resume, checkpoint, alarm or end. `step` = steps done: for resume the step of the
/// checkpoint, for start 0. `members` is an object of further members (or null).
struct EventRecord {
  EventKind kind = EventKind::start;
  int64_t step = 0;
  double time = 0;  // unix seconds; filled in by the writer when 0
  Json members;
};

Json to_json(const StepRecord& record);
Json to_json(const EvalRecord& record);
Json to_json(const EventRecord& record);
/// The inverse; members that are missing keep their default, unknown ones are ignored. Throws
/// InputError on a wrong type.
StepRecord step_record(const Json& json);
EvalRecord eval_record(const Json& json);

/// Appends to `path`, making it when absent. Each call writes one whole line before it returns; a
/// line torn by an earlier crash is cut off first, so that the file is valid JSON lines always.
/// Throws ResourceError when the disk refuses. Use from one thread.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::string path, FileSystem& files = posix_files());

  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(EventRecord record);
  void event(EventKind kind, int64_t step, Json members = nullptr);
  /// Returns when all lines are on the disk.
  void sync();

 private:
  void append(const Json& json);

  File file_;
  int64_t end_ = 0;
};

/// A metrics file after the rule of superseded records was applied.
struct RunMetrics {
  std::vector<StepRecord> steps;    // ascending, each step once
  std::vector<EvalRecord> evals;    // ascending, each step once
  std::vector<EventRecord> events;  // all, in the order of the file
  bool torn = false;                // the last line was incomplete and was left out
};

/// Reads `path`. A resume from step S supersedes all step and eval records after S that were
/// written before it; a start supersedes all; of several records of one step the last one counts.
/// A torn last line is left out. Throws InputError naming the line for any other damage.
RunMetrics read_metrics(const std::string& path);

}  // namespace weft
