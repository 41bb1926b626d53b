#include "weft/data/loader.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/data/order.h"

namespace weft {
namespace {

/// A batch of `sequences` rows, all labels ignored.
GlobalBatch empty_batch(int64_t sequences, int64_t seq_len) {
  GlobalBatch batch;
  batch.sequences = sequences;
  batch.seq_len = seq_len;
  const auto size = static_cast<size_t>(sequences * seq_len);
  batch.tokens.assign(size, 0);
  batch.labels.assign(size, kIgnoredLabel);
  batch.positions.resize(size);
  for (size_t i = 0; i < size; ++i) {
    batch.positions[i] = static_cast<int32_t>(i % static_cast<size_t>(seq_len));
  }
  batch.segments.assign(size, 0);
  batch.lengths.assign(static_cast<size_t>(sequences), 0);
  batch.samples.assign(static_cast<size_t>(sequences), 0);
  return batch;
}

SampleView row_of(GlobalBatch& batch, int64_t row) {
  const int64_t at = row * batch.seq_len;
  return {batch.tokens.data() + at, batch.labels.data() + at, batch.positions.data() + at,
          batch.segments.data() + at, batch.lengths.data() + row};
}

int64_t count_valid(const GlobalBatch& batch) {
  return static_cast<int64_t>(batch.labels.size()) -
         std::count(batch.labels.begin(), batch.labels.end(), kIgnoredLabel);
}

/// Element `index` of epoch `epoch` of a part.
int64_t ordered(const LoaderOptions& options, const std::string& stream, int64_t size,
                int64_t index) {
  if (!options.shuffle) return index;
  return Permutation(RngStream(options.seed, stream), size).at(index);
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options), position_(options.start) {
  const int64_t samples = dataset_->num_samples();
  WEFT_CHECK(options.global_batch > 0 && options.start >= 0, "Loader",
             "got global batch {} and start {}", options.global_batch, options.start);
  if (samples < options.global_batch) {
    throw InputError("data.train",
                     fmt::format("got {} samples, expected at least one global batch of {}; try "
                                 "more data, a smaller data.seq_len or train.global_batch",
                                 samples, options.global_batch));
  }
  epoch_samples_ = samples / options.global_batch * options.global_batch;
  if (dataset_->weighted()) {
    std::vector<double> weights;
    for (const Dataset::Part& part : dataset_->parts()) weights.push_back(part.weight);
    blend_ = std::make_unique<Blend>(std::move(weights));
  } else {
    dropped_ = samples - epoch_samples_;
  }
  if (dropped_ > 0) {
    log_info("data: {} of {} samples are dropped in each epoch, since they fill no global batch",
             dropped_, samples);
  }
  prepare_next();
}

Loader::~Loader() {
  if (ahead_.valid()) ahead_.wait();
}

GlobalBatch Loader::next() {
  GlobalBatch batch = ahead_.get();
  position_ += options_.global_batch;
  prepare_next();
  return batch;
}

void Loader::prepare_next() {
  const auto work = [this, at = position_, rank = LogRank::current()] {
    const LogRank log_rank(rank);
    return make(at);
  };
  ahead_ = std::async(std::launch::async, work).share();
}

GlobalBatch Loader::make(int64_t position) {
  GlobalBatch batch = empty_batch(options_.global_batch, dataset_->seq_len());
  batch.epoch = position / epoch_samples_;
  for (int64_t row = 0; row < options_.global_batch; ++row) {
    const int64_t number = position + row;
    batch.samples[static_cast<size_t>(row)] = number;
    if (!blend_) {
      const int64_t epoch = number / epoch_samples_;
      const int64_t index = ordered(options_, fmt::format("data.order.{}", epoch),
                                    dataset_->num_samples(), number % epoch_samples_);
      dataset_->read_sample(index, row_of(batch, row));
      continue;
    }
    const Blend::Pick pick = blend_->at(number);
    const Dataset::Part& part = dataset_->parts()[static_cast<size_t>(pick.source)];
    const int64_t epoch = pick.index / part.count;
    if (pick.index > 0 && pick.index % part.count == 0) {
      log_info("data {}: all {} samples used, epoch {} begins at sample {} of the run", part.name,
               part.count, epoch + 1, number);
    }
    const int64_t index = ordered(options_, fmt::format("data.order.{}.{}", pick.source, epoch),
                                  part.count, pick.index % part.count);
    dataset_->read_sample(pick.source, index, row_of(batch, row));
  }
  batch.valid_labels = count_valid(batch);
  return batch;
}

int64_t num_eval_batches(const Dataset& dataset, int64_t batch) {
  WEFT_CHECK(batch > 0, "num_eval_batches", "got a batch of {}", batch);
  return (dataset.num_samples() + batch - 1) / batch;
}

GlobalBatch eval_batch(const Dataset& dataset, int64_t index, int64_t batch) {
  WEFT_CHECK(index >= 0 && index < num_eval_batches(dataset, batch), "eval_batch",
             "got batch {} of {}", index, num_eval_batches(dataset, batch));
  GlobalBatch result = empty_batch(batch, dataset.seq_len());
  std::fill(result.tokens.begin(), result.tokens.end(), dataset.options().eod_id);
  for (int64_t row = 0; row < batch; ++row) {
    const int64_t sample = index * batch + row;
    result.samples[static_cast<size_t>(row)] = sample;
    if (sample < dataset.num_samples()) dataset.read_sample(sample, row_of(result, row));
  }
  result.valid_labels = count_valid(result);
  return result;
}

}  // namespace weft
