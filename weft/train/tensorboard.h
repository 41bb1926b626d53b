// Event files that TensorBoard reads: framed protobuf records, encoded here by hand because only
// scalars and the restart mark are needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/io/file.h"
#include "weft/train/metrics.h"

namespace weft {

/// Writes one new event file into a folder. Every call leaves whole records on the file. Throws
/// ResourceError when the disk refuses. Use from one thread.
class TensorBoardWriter {
 public:
  /// Makes `folder` and a file in it whose name sorts after those already there. `first_step` is
  /// the first step that will be written; above 1 (a resume) the file begins with a restart mark
  /// at that step, upon which TensorBoard drops what older files say about it and later steps.
  TensorBoardWriter(const std::string& folder, int64_t first_step,
                    FileSystem& files = posix_files());

  void scalar(int64_t step, std::string_view tag, double value);
  /// train/loss, train/grad_norm, train/lr, train/tokens_per_s, train/step_ms, train/mfu,
  /// train/loss_scale, train/epoch, memory/<tier>_bytes; with experts train/aux_loss and
  /// train/dropped_tokens.
  void step(const StepRecord& record);
  /// eval/loss, eval/perplexity.
  void eval(const EvalRecord& record);

  const std::string& path() const { return file_.path(); }

 private:
  void append(std::string_view bytes);

  File file_;
  int64_t end_ = 0;
};

/// One framed record: length, its checksum, data, checksum.
std::string tensorboard_record(std::string_view data);
/// Encoded Event messages.
std::string tensorboard_version_event(double wall_time);
std::string tensorboard_restart_event(double wall_time, int64_t step);
std::string tensorboard_scalar_event(double wall_time, int64_t step, std::string_view tag,
                                     float value);

}  // namespace weft
