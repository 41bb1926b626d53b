#include "weft/data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/data/blend.h"
#include "weft/data/data_files.h"
#include "weft/data/source.h"

namespace weft {
namespace {

using Parts = std::vector<Dataset::Part>;

SampleOptions sample_options(const DataConfig& config, const Tokenizer& tokenizer) {
  if (config.seq_len < 1) {
    throw UsageError("data.seq_len", fmt::format("got {}, expected 1 or more", config.seq_len));
  }
  return {config.seq_len, tokenizer.eod_id(), config.reset_positions, config.reset_attention,
          config.mask_boundary};
}

/// One part from the files of all `paths`, joined in the order given.
Dataset::Part open_part(const DataConfig& config, const std::string& base_folder,
                        const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                        const std::shared_ptr<FilePool>& pool) {
  const auto source = std::make_shared<Source>(sample_options(config, tokenizer), tokenizer,
                                               config.allow_special, pool);
  for (const std::string& path : paths) {
    for (const DataFile& file : find_data_files(resolve_path(base_folder, path))) {
      source->add(file);
    }
  }
  const SourceCounts& counts = source->counts();
  std::string name = paths.front();
  if (paths.size() > 1) name += fmt::format(" and {} more", paths.size() - 1);
  if (source->num_samples() == 0) {
    throw InputError(
        name, fmt::format("got {} tokens in {} documents ({} empty ones skipped), "
                          "expected at least seq_len + 1 = {}; try more text or a "
                          "smaller data.seq_len",
                          counts.tokens, counts.documents, counts.skipped, config.seq_len + 1));
  }
  log_info("data {}: {} documents, {} tokens, {} samples, {} empty documents skipped", name,
           counts.documents, counts.tokens, source->num_samples(), counts.skipped);
  return {source, 0, source->num_samples(), 0, name};
}

Parts open_train_parts(const DataConfig& config, const std::string& base_folder,
                       const Tokenizer& tokenizer, const std::shared_ptr<FilePool>& pool) {
  if (config.train.empty()) {
    throw UsageError("data.train", "got no files, expected at least one");
  }
  if (config.weights.empty()) {
    return {open_part(config, base_folder, tokenizer, config.train, pool)};
  }
  const std::vector<double> weights = normalize_weights(config.weights, config.train.size());
  Parts parts;
  for (size_t i = 0; i < weights.size(); ++i) {
    parts.push_back(open_part(config, base_folder, tokenizer, {config.train[i]}, pool));
    parts.back().weight = weights[i];
  }
  return parts;
}

/// Moves the last `fraction` of the samples of each part to the result.
Parts split_valid(Parts& parts, double fraction) {
  Parts valid;
  int64_t total = 0;
  for (Dataset::Part& part : parts) {
    // The small term keeps 100 * 0.29 from becoming 28.
    const auto count =
        static_cast<int64_t>(std::floor(static_cast<double>(part.count) * fraction + 1e-9));
    total += part.count;
    if (count == 0) continue;
    part.count -= count;
    valid.push_back({part.source, part.first + part.count, count, 0, part.name});
  }
  if (valid.empty()) {
    throw InputError("data.valid_fraction",
                     fmt::format("got 0 validation samples ({} of {} samples), expected at least "
                                 "1; try a greater fraction or data.valid",
                                 fraction, total));
  }
  return valid;
}

void check_valid_options(const DataConfig& config) {
  if (!(config.valid_fraction >= 0 && config.valid_fraction < 1)) {
    throw UsageError("data.valid_fraction",
                     fmt::format("got {}, expected 0 to less than 1", config.valid_fraction));
  }
  if (!config.valid.empty() && config.valid_fraction > 0) {
    throw UsageError("data.valid_fraction", "got data.valid too, expected only one of the two");
  }
}

std::shared_ptr<const Dataset> make_dataset(Parts parts, const DataConfig& config,
                                            const Tokenizer& tokenizer) {
  return std::make_shared<Dataset>(std::move(parts), sample_options(config, tokenizer));
}

}  // namespace

Dataset::Dataset(std::vector<Part> parts, SampleOptions options)
    : parts_(std::move(parts)), options_(options) {
  for (const Part& part : parts_) {
    num_samples_ += part.count;
    weighted_ = weighted_ || part.weight > 0;
    WEFT_CHECK(
        part.first >= 0 && part.count >= 0 && part.first + part.count <= part.source->num_samples(),
        "Dataset", "got samples [{}, {}) of {}", part.first, part.first + part.count,
        part.source->num_samples());
  }
  for (const Part& part : parts_) {
    if (part.weight > 0 && part.count == 0) {
      throw InputError(part.name,
                       "got no training samples, expected at least one for a source "
                       "with a weight; try a smaller data.valid_fraction");
    }
  }
}

SourceCounts Dataset::counts() const {
  SourceCounts sum;
  for (const Part& part : parts_) {
    const SourceCounts& counts = part.source->counts();
    sum.documents += counts.documents;
    sum.tokens += counts.tokens;
    sum.skipped += counts.skipped;
  }
  return sum;
}

void Dataset::read_sample(int64_t part, int64_t index, const SampleView& out) const {
  WEFT_CHECK(part >= 0 && part < static_cast<int64_t>(parts_.size()), "Dataset::read_sample",
             "got part {} of {}", part, parts_.size());
  const Part& chosen = parts_[static_cast<size_t>(part)];
  WEFT_CHECK(index >= 0 && index < chosen.count, "Dataset::read_sample", "got sample {} of {}",
             index, chosen.count);
  chosen.source->read_sample(chosen.first + index, out);
}

void Dataset::read_sample(int64_t index, const SampleView& out) const {
  int64_t part = 0;
  while (part + 1 < static_cast<int64_t>(parts_.size()) &&
         index >= parts_[static_cast<size_t>(part)].count) {
    index -= parts_[static_cast<size_t>(part)].count;
    ++part;
  }
  read_sample(part, index, out);
}

DataSets open_datasets(const DataConfig& config, const std::string& base_folder,
                       const Tokenizer& tokenizer) {
  check_valid_options(config);
  const auto pool = std::make_shared<FilePool>();
  Parts train = open_train_parts(config, base_folder, tokenizer, pool);
  DataSets sets;
  if (!config.valid.empty()) {
    sets.valid = make_dataset({open_part(config, base_folder, tokenizer, config.valid, pool)},
                              config, tokenizer);
  } else if (config.valid_fraction > 0) {
    sets.valid = make_dataset(split_valid(train, config.valid_fraction), config, tokenizer);
  }
  sets.train = make_dataset(std::move(train), config, tokenizer);
  return sets;
}

std::shared_ptr<const Dataset> open_valid_dataset(const DataConfig& config,
                                                  const std::string& base_folder,
                                                  const Tokenizer& tokenizer) {
  check_valid_options(config);
  const auto pool = std::make_shared<FilePool>();
  if (!config.valid.empty()) {
    return make_dataset({open_part(config, base_folder, tokenizer, config.valid, pool)}, config,
                        tokenizer);
  }
  if (config.valid_fraction > 0) {
    Parts train = open_train_parts(config, base_folder, tokenizer, pool);
    return make_dataset(split_valid(train, config.valid_fraction), config, tokenizer);
  }
  throw UsageError("data.valid",
                   "got no validation data, expected files in data.valid; try "
                   "--set data.valid_fraction=0.1");
}

}  // namespace weft
