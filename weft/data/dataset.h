// Samples of a run. A Dataset is a list of sources; a source is one stream of tokens (documents
// joined, one end-of-document id after each; token files as stored) plus the `input_ids` rows of
// its .jsonl files. Sample i of the stream is tokens [i * seq_len, (i + 1) * seq_len]; rows follow.
// Immutable after opening; const calls may run from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/config/config.h"
#include "weft/data/tokenizer.h"

namespace weft {

/// Label that does not count.
constexpr int32_t kIgnoredLabel = -100;

/// Where one sample is written, seq_len elements each. labels[s] is the id to be predicted from
/// tokens [0, s], or kIgnoredLabel. segments[s] numbers the documents of the sample from 0 when
/// attention is kept inside documents and is 0 otherwise. *length is the number of tokens before
/// the padding.
struct SampleView {
  int32_t* tokens = nullptr;
  int32_t* labels = nullptr;
  int32_t* positions = nullptr;
  int32_t* segments = nullptr;
  int32_t* length = nullptr;
};

struct SampleOptions {
  int64_t seq_len = 0;
  int32_t eod_id = 0;
  bool reset_positions = false;
  bool reset_attention = false;
  bool mask_boundary = false;
};

/// Counts of what was read.
struct SourceCounts {
  int64_t documents = 0;  // documents of the stream and rows
  int64_t tokens = 0;     // with end-of-document ids
  int64_t skipped = 0;    // empty documents and rows
};

/// One source; see dataset.cpp.
class Source;

class Dataset {
 public:
  struct Part {
    std::shared_ptr<const Source> source;
    int64_t first = 0;  // samples [first, first + count) of the source
    int64_t count = 0;
    double weight = 0;  // sum 1 over the parts of a weighted data set, else 0
    std::string name;
  };

  Dataset(std::vector<Part> parts, SampleOptions options);

  const SampleOptions& options() const { return options_; }
  int64_t seq_len() const { return options_.seq_len; }
  int64_t num_samples() const { return num_samples_; }
  bool weighted() const { return weighted_; }
  const std::vector<Part>& parts() const { return parts_; }
  SourceCounts counts() const;

  /// Sample `index` of part `part`.
  void read_sample(int64_t part, int64_t index, const SampleView& out) const;
  /// Sample `index` of all parts in order.
  void read_sample(int64_t index, const SampleView& out) const;

 private:
  std::vector<Part> parts_;
  SampleOptions options_;
  int64_t num_samples_ = 0;
  bool weighted_ = false;
};

struct DataSets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> valid;  // null when neither valid nor valid_fraction is set
};

/// Opens train and validation data. Relative paths are taken from `base_folder` ("" = the current
/// folder); those of a loaded Config are absolute already. A path is a .txt or .jsonl file, a token
/// file prefix, a folder (its data files in name order) or a glob pattern (matches in name order).
/// Throws InputError for missing, bad or empty data, for ids outside the vocabulary, and when a
/// validation part was asked for and has no sample; UsageError for weights that cannot be.
DataSets open_datasets(const DataConfig& config, const std::string& base_folder,
                       const Tokenizer& tokenizer);
/// Only the validation part, for `eval` (the train files are read only with valid_fraction).
std::shared_ptr<const Dataset> open_valid_dataset(const DataConfig& config,
                                                  const std::string& base_folder,
                                                  const Tokenizer& tokenizer);

/// For `weft inspect`.
struct DatasetSummary {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t skipped = 0;
  std::string dtype;    // of the token file; for text the width its ids would be stored with
  int64_t max_id = -1;  // -1 when there are no tokens
};
/// True when `path` names a data set (.txt, .jsonl, .bin, .idx or a prefix of the latter).
bool is_dataset_path(const std::string& path);
/// `tokenizer` is used for text only.
DatasetSummary summarize_dataset(const std::string& path, const Tokenizer& tokenizer);
/// Ids of document `number` (from 0), as stored. Throws UsageError when there is none.
std::vector<int32_t> dataset_document(const std::string& path, const Tokenizer& tokenizer,
                                      int64_t number);

}  // namespace weft
