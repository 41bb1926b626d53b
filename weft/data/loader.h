// Global batches in an order that is a pure function of (data, seed, position). The position is one
// number, the samples consumed; the ranks of any layout take slices of the same global batch.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "weft/data/blend.h"
#include "weft/data/dataset.h"

namespace weft {

/// Row-major [sequences, seq_len] arrays; see SampleView for what they hold.
struct GlobalBatch {
  int64_t sequences = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // already shifted; -100 where ignored
  std::vector<int32_t> positions;
  std::vector<int32_t> segments;
  std::vector<int32_t> lengths;  // [sequences]: tokens before the padding
  std::vector<int64_t> samples;  // [sequences]: number of the sample in the run, never used twice
  int64_t valid_labels = 0;      // labels != -100
  int64_t epoch = 0;             // of the first sample, from 0
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t global_batch = 0;  // sequences
  int64_t start = 0;         // samples consumed before the first batch
};

/// Endless training batches. The next batch is prepared in the background, which has no effect on
/// the result. Use from one thread.
class Loader {
 public:
  /// Throws InputError when the data have fewer samples than one global batch.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The batch at samples_consumed(). Errors of the background thread are thrown here, again on
  /// each further call.
  GlobalBatch next();

  /// The position to store in a checkpoint: samples of all batches returned so far.
  int64_t samples_consumed() const { return position_; }
  /// Epoch of the next sample, from 0.
  int64_t epoch() const { return position_ / epoch_samples_; }
  /// Samples of one epoch that are visited: whole global batches only.
  int64_t epoch_samples() const { return epoch_samples_; }
  /// Samples of each epoch that are dropped because they do not fill a global batch; 0 for weighted
  /// data, whose sources run on independently.
  int64_t dropped_per_epoch() const { return dropped_; }

 private:
  GlobalBatch make(int64_t position);
  void prepare_next();

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t position_ = 0;
  int64_t epoch_samples_ = 0;
  int64_t dropped_ = 0;
  std::unique_ptr<Blend> blend_;  // weighted data only; used by the background task alone
  std::shared_future<GlobalBatch> ahead_;
};

/// Number of evaluation batches of `batch` sequences: every sample once.
int64_t num_eval_batches(const Dataset& dataset, int64_t batch);
/// Evaluation batch `index`: samples in order; rows after the last sample have every label ignored.
/// No state is read or changed.
GlobalBatch eval_batch(const Dataset& dataset, int64_t index, int64_t batch);

}  // namespace weft
