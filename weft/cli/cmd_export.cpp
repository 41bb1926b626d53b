// weft export: a Hugging Face folder from a checkpoint or the newest one of a run.
#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/hf_export.h"
#include "weft/cli/verb.h"
#include "weft/config/config.h"

namespace weft {
namespace {

class ExportVerb : public Verb {
 public:
  std::string_view name() const override { return "export"; }
  std::string_view help() const override { return "write a Hugging Face folder"; }
  void declare(OptionList& options) override {
    options.positional("CHECKPOINT_OR_RUN", &source_, "checkpoint folder, or run: its newest");
    options.required_value("--out", &out_, "DIR", "folder to write; absent or empty");
    options.value("--dtype", &dtype_, "D",
                  "fp32, bf16 or fp16; default: that of the imported model, else "
                  "precision.compute");
    options.value("--shard-size", &shard_size_, "SIZE", "largest file (default 5GB)");
    options.flag("--json", &json_, "print one JSON document");
  }
  int run() override;

 private:
  std::string source_;
  std::string out_;
  std::optional<std::string> dtype_;
  std::optional<std::string> shard_size_;
  bool json_ = false;
};

int ExportVerb::run() {
  ExportOptions options;
  if (dtype_) {
    options.dtype = parse_dtype(*dtype_);
    if (!options.dtype || !is_floating(*options.dtype)) {
      throw UsageError("--dtype", fmt::format("got \"{}\", expected fp32, bf16 or fp16", *dtype_));
    }
  }
  if (shard_size_) {
    options.shard_bytes = parse_bytes(*shard_size_, "--shard-size");
    if (options.shard_bytes <= 0) {
      throw UsageError("--shard-size", fmt::format("got {}, expected more than 0", *shard_size_));
    }
  }
  FileSystem& files = posix_files();
  const std::string checkpoint = resolve_checkpoint(files, source_);
  const ExportReport report = export_checkpoint(files, checkpoint, out_, options);
  if (json_) {
    print_json(Json::object({{"checkpoint", checkpoint},
                             {"out", out_},
                             {"dtype", report.dtype},
                             {"tensors", report.tensors},
                             {"bytes", report.bytes},
                             {"copied", Json(report.copied)}}));
    return 0;
  }
  print_text(fmt::format("{} -> {}: {} tensors, {} bytes, {}\n", checkpoint, out_, report.tensors,
                         report.bytes, report.dtype));
  for (const std::string& name : report.copied) {
    print_text(fmt::format("  {} copied\n", name));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_export_verb() { return std::make_unique<ExportVerb>(); }

}  // namespace weft
