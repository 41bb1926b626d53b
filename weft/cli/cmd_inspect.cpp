// weft inspect: what is in a checkpoint, run, safetensors file, Hugging Face folder or data set.
#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/finite.h"
#include "weft/cli/verb.h"
#include "weft/data/dataset.h"
#include "weft/io/hf_folder.h"

namespace weft {
namespace {

/// What one branch found: the document of --json, its text form, and faults found by --verify.
struct Finding {
  Json json = Json::object();
  std::string text;
  std::vector<std::string> problems;
};

std::string size_text(int64_t bytes) {
  if (bytes < 1 << 20) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string tensor_line(const std::string& name, std::string_view dtype, const Shape& shape) {
  return fmt::format("  {:<52} {:<5} {}\n", name, dtype, shape_text(shape));
}

Json tensor_row(const std::string& name, std::string_view dtype, const Shape& shape) {
  return Json::object({{"name", name}, {"dtype", dtype}, {"shape", Json(shape)}});
}

Finding inspect_checkpoint(FileSystem& files, const std::string& path, bool verify) {
  const Manifest manifest = read_manifest(files, path);
  Finding finding;
  int64_t parameters = 0;
  int64_t bytes = 0;
  Json tensors = Json::array();
  std::string table;
  for (const LogicalTensor& tensor : manifest.tensors) {
    const int64_t count = num_elements(tensor.shape);
    if (!is_slot_name(tensor.name)) parameters += count;
    bytes += count * dtype_size(tensor.dtype);
    tensors.push(tensor_row(tensor.name, dtype_name(tensor.dtype), tensor.shape));
    table += tensor_line(tensor.name, dtype_name(tensor.dtype), tensor.shape);
  }
  const TrainState& train = manifest.train;
  finding.json = Json::object({{"kind", "checkpoint"},
                               {"path", path},
                               {"step", train.step},
                               {"epoch", train.epoch},
                               {"samples_consumed", train.samples_consumed},
                               {"tokens_total", train.tokens_total},
                               {"parameters", parameters},
                               {"bytes", bytes},
                               {"intact", manifest.intact},
                               {"tensors", std::move(tensors)}});
  finding.text = fmt::format(
      "checkpoint {}\nstep {}, epoch {}, {} samples, {} tokens\n{} parameters, {} tensors, {}\n{}",
      path, train.step, train.epoch, train.samples_consumed, train.tokens_total, parameters,
      manifest.tensors.size(), size_text(bytes), table);
  if (verify) finding.problems = verify_checkpoint(files, path).problems;
  return finding;
}

Finding inspect_run(FileSystem& files, const std::string& path, const std::string& root,
                    bool verify) {
  Finding finding;
  Json rows = Json::array();
  const std::vector<CheckpointEntry> entries = list_checkpoints(files, root);
  finding.text = fmt::format("run {}\n{} checkpoints\n", path, entries.size());
  Json newest = nullptr;
  for (const CheckpointEntry& entry : entries) {
    rows.push(Json::object({{"path", entry.path},
                            {"step", entry.step},
                            {"complete", entry.complete},
                            {"problem", entry.problem}}));
    finding.text += fmt::format("  step {:>8}  {}\n", entry.step,
                                entry.complete ? "complete" : "not complete: " + entry.problem);
    if (entry.complete) newest = entry.path;
    if (!verify) continue;
    if (!entry.complete) {
      finding.problems.push_back(entry.problem);
      continue;
    }
    const VerifyReport report = verify_checkpoint(files, entry.path);
    finding.problems.insert(finding.problems.end(), report.problems.begin(), report.problems.end());
  }
  finding.json = Json::object({{"kind", "run"},
                               {"path", path},
                               {"newest", std::move(newest)},
                               {"checkpoints", std::move(rows)}});
  return finding;
}

/// Values that are not finite, tensor by tensor.
void find_bad_values(HfTensors& tensors, std::vector<std::string>& problems) {
  constexpr int64_t kChunk = 1 << 22;  // a multiple of every element size
  std::vector<char> buffer(kChunk);
  for (const HfTensors::Item& item : tensors.tensors()) {
    const TensorEntry& entry = item.entry;
    for (int64_t at = 0; at < entry.bytes; at += kChunk) {
      const int64_t bytes = std::min(kChunk, entry.bytes - at);
      tensors.read(item, at, buffer.data(), bytes);
      if (!is_floating(entry.dtype)) continue;
      const int64_t size = dtype_size(entry.dtype);
      const int64_t bad = find_nonfinite(buffer.data(), entry.dtype, bytes / size);
      if (bad < 0) continue;
      problems.push_back(fmt::format(
          "[{}] tensor \"{}\" holds {} at element {}", tensors.file_of(item), entry.name,
          nonfinite_text(buffer.data(), entry.dtype, bad), at / size + bad));
      break;
    }
  }
}

Finding inspect_tensors(FileSystem& files, const std::string& path, bool verify) {
  HfTensors tensors(files, path);
  const bool folder = files.is_folder(path);
  Finding finding;
  Json rows = Json::array();
  std::string table;
  int64_t bytes = 0;
  for (const HfTensors::Item& item : tensors.tensors()) {
    bytes += item.entry.bytes;
    rows.push(tensor_row(item.entry.name, item.entry.dtype_name, item.entry.shape));
    table += tensor_line(item.entry.name, item.entry.dtype_name, item.entry.shape);
  }
  finding.json = Json::object({{"kind", folder ? "huggingface" : "safetensors"},
                               {"path", path},
                               {"files", static_cast<int64_t>(tensors.files().size())},
                               {"bytes", bytes}});
  std::string type;
  const std::string config = join_path(path, "config.json");
  if (folder && files.is_file(config)) {
    const Json json = read_json_file(config);
    const Json* found = json.find("model_type");
    if (found != nullptr && found->is_string()) type = found->as_string();
    finding.json.set("model_type", type);
  }
  if (!folder) {
    Json metadata = Json::object();
    for (const auto& [key, value] : tensors.files()[0]->metadata()) metadata.set(key, value);
    finding.json.set("metadata", std::move(metadata));
  }
  finding.json.set("tensors", std::move(rows));
  finding.text = fmt::format("{} {}\n{}{} tensors in {} files, {}\n{}",
                             folder ? "Hugging Face folder" : "safetensors file", path,
                             type.empty() ? "" : type + ", ", tensors.tensors().size(),
                             tensors.files().size(), size_text(bytes), table);
  if (verify) find_bad_values(tensors, finding.problems);
  return finding;
}

class InspectVerb : public Verb {
 public:
  std::string_view name() const override { return "inspect"; }
  std::string_view help() const override {
    return "show a checkpoint, data set, safetensors file, Hugging Face folder or run";
  }
  void declare(OptionList& options) override {
    options.positional("PATH", &path_, "what to look at");
    options.flag("--verify", &verify_, "read everything: checksums, values that are not finite");
    options.value("--document", &document_, "N", "the ids of one document of a data set, from 0");
    options.value("--tokenizer", &tokenizer_, "T", "for .txt and .jsonl (default bytes)");
    options.flag("--json", &json_, "print one JSON document");
  }
  int run() override;

 private:
  Finding inspect(FileSystem& files) const;
  Finding inspect_dataset() const;

  std::string path_;
  std::string tokenizer_ = "bytes";
  std::optional<int64_t> document_;
  bool verify_ = false;
  bool json_ = false;
};

Finding InspectVerb::inspect_dataset() const {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(tokenizer_);
  Finding finding;
  if (document_) {
    const std::vector<int32_t> ids = dataset_document(path_, *tokenizer, *document_);
    Json list = Json::array();
    for (const int32_t id : ids) {
      list.push(int64_t{id});
      finding.text += fmt::format("{}{}", finding.text.empty() ? "" : " ", id);
    }
    finding.text += "\n";
    finding.json = Json::object({{"ids", std::move(list)}});
    return finding;
  }
  const DatasetSummary summary = summarize_dataset(path_, *tokenizer);
  finding.json = Json::object({{"documents", summary.documents},
                               {"tokens", summary.tokens},
                               {"dtype", summary.dtype},
                               {"max_id", summary.max_id},
                               {"skipped", summary.skipped}});
  finding.text = fmt::format(
      "data set {}\n{} documents, {} tokens of {}, greatest id {}, {} empty "
      "documents skipped\n",
      path_, summary.documents, summary.tokens, summary.dtype, summary.max_id, summary.skipped);
  return finding;
}

Finding InspectVerb::inspect(FileSystem& files) const {
  if (files.is_folder(path_)) {
    if (files.is_file(join_path(path_, kManifestName))) {
      return inspect_checkpoint(files, path_, verify_);
    }
    const std::string checkpoints = join_path(path_, "checkpoints");
    if (files.is_folder(checkpoints)) return inspect_run(files, path_, checkpoints, verify_);
    if (!list_checkpoints(files, path_).empty()) return inspect_run(files, path_, path_, verify_);
    return inspect_tensors(files, path_, verify_);
  }
  const std::string_view end = ".safetensors";
  const bool safetensors =
      path_.size() > end.size() && path_.compare(path_.size() - end.size(), end.size(), end) == 0;
  if (safetensors) return inspect_tensors(files, path_, verify_);
  if (is_dataset_path(path_)) return inspect_dataset();
  throw InputError(path_, files.kind(path_) == PathKind::absent
                              ? "is missing, expected something to look at; try checking the path"
                              : "got an unknown kind of file, expected a checkpoint, a run, "
                                ".safetensors, a Hugging Face folder or a data set");
}

int InspectVerb::run() {
  FileSystem& files = posix_files();
  if (document_ && !is_dataset_path(path_)) {
    throw UsageError("--document", fmt::format("got {}, expected a data set", path_));
  }
  Finding finding = inspect(files);
  if (verify_) {
    finding.json.set("problems", Json(finding.problems));
    finding.text += finding.problems.empty()
                        ? "verified: no problem\n"
                        : fmt::format("{} problems\n", finding.problems.size());
    for (const std::string& problem : finding.problems) finding.text += "  " + problem + "\n";
  }
  if (json_) {
    print_json(finding.json);
  } else {
    print_text(finding.text);
  }
  return static_cast<int>(finding.problems.empty() ? ExitCode::done : ExitCode::input);
}

}  // namespace

std::unique_ptr<Verb> make_inspect_verb() { return std::make_unique<InspectVerb>(); }

}  // namespace weft
