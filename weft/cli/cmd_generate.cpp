// weft generate: samples text from a run, a checkpoint or a Hugging Face folder.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/cli/verb.h"
#include "weft/train/generate.h"
#include "weft/train/ranks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class GenerateVerb : public Verb {
 public:
  std::string_view name() const override { return "generate"; }
  std::string_view help() const override { return "sample text from a trained model"; }
  void declare(OptionList& options) override {
    options.positional("RUN_OR_HF", &source_, "run folder or Hugging Face folder");
    options.required_value("--prompt", &prompt_, "TEXT", "text to continue");
    options.value("--max-new-tokens", &generate_.max_new_tokens, "N", "default 200");
    options.value("--temperature", &generate_.temperature, "T", "default 1; 0 = likeliest token");
    options.value("--top-k", &generate_.top_k, "K", "default 0 = all");
    options.value("--seed", &generate_.seed, "S", "default 1234");
    options.value("--tokenizer", &tokenizer_, "T",
                  "default: that of the run or folder; bytes when the folder has none");
    options.flag("--json", &json_, "print {\"prompt\",\"text\",\"ids\"}");
  }
  int run() override;

 private:
  Config load() const;
  void check() const;

  std::string source_;
  std::string prompt_;
  std::string tokenizer_;
  GenerateOptions generate_;
  bool json_ = false;
};

void GenerateVerb::check() const {
  if (generate_.max_new_tokens < 1 || generate_.temperature < 0 || generate_.top_k < 0) {
    throw UsageError("generate",
                     fmt::format("got --max-new-tokens {} --temperature {} --top-k {}, expected at "
                                 "least 1, 0 and 0",
                                 generate_.max_new_tokens, generate_.temperature, generate_.top_k));
  }
  if (!fs::is_directory(source_)) {
    throw InputError(source_, "got no such folder, expected a run or a Hugging Face folder");
  }
}

Config GenerateVerb::load() const {
  std::vector<std::string> overrides;
  if (!tokenizer_.empty()) {
    overrides.push_back("data.tokenizer=\"" +
                        (tokenizer_ == "bytes" ? tokenizer_ : fs::absolute(tokenizer_).string()) +
                        "\"");
  }
  if (is_run_folder(source_)) return load_run_config(source_, overrides);
  Config config;
  config.model.hf = fs::absolute(source_).string();
  config.precision.compute = "fp32";
  config.train.micro_batch = config.train.accumulation = config.train.global_batch = 1;
  const bool own = fs::exists(source_ + "/tokenizer.json") || fs::exists(source_ + "/vocab.json");
  config.data.tokenizer = !tokenizer_.empty() ? tokenizer_ : own ? config.model.hf : "bytes";
  return config;
}

int GenerateVerb::run() {
  check();
  Config config = load();
  use_one_rank(config);
  const auto tokenizer = load_tokenizer(tokenizer_path(config));
  const std::vector<int32_t> prompt = tokenizer->encode(prompt_);
  const ModelSpec spec = make_model_spec(config.model, tokenizer->vocab_size());
  CompileOptions options;
  options.train = false;
  const int64_t wanted = static_cast<int64_t>(prompt.size()) + generate_.max_new_tokens;
  options.logits_seq_len =
      std::max<int64_t>(1, std::min((wanted + 15) / 16 * 16, spec.max_positions));
  config.data.seq_len = options.logits_seq_len;
  const std::unique_ptr<Job> owner = open_job(std::move(config), options);
  Job& job = *owner;
  FileSystem files(posix_driver());
  init_weights(job, files, source_);

  std::vector<int32_t> ids;
  std::string text;
  if (!json_) print_text(prompt_);
  generate(job, prompt, generate_, [&](int32_t id) {
    ids.push_back(id);
    const std::string piece = job.tokenizer->decode({{id}});
    text += piece;
    if (!json_) print_text(piece);
  });
  if (json_) {
    print_json(Json::object({{"prompt", prompt_}, {"text", text}, {"ids", Json(ids)}}));
  } else {
    print_text("\n");
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_generate_verb() { return std::make_unique<GenerateVerb>(); }

}  // namespace weft
