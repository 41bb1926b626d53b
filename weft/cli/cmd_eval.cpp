// weft eval: token-weighted loss over the whole validation set.
#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/cli/verb.h"
#include "weft/data/dataset.h"
#include "weft/train/agree.h"
#include "weft/train/evaluate.h"
#include "weft/train/job.h"
#include "weft/train/ranks.h"

namespace weft {
namespace {

class EvalVerb : public Verb {
 public:
  std::string_view name() const override { return "eval"; }
  std::string_view help() const override {
    return "loss and perplexity over the whole validation set";
  }
  void declare(OptionList& options) override {
    options.positional("CONFIG_OR_RUN", &config_, "configuration file or run folder");
    options.value("--checkpoint", &checkpoint_, "PATH",
                  "checkpoint, run or Hugging Face folder; default: the newest of the run");
    options.list("--set", &overrides_, "KEY=VALUE", "override one key; repeatable");
    options.flag("--json", &json_, "print {\"loss\",\"perplexity\",\"tokens\"}");
  }
  bool runs_on_all_ranks() const override { return true; }
  int run() override;

 private:
  int run_rank(const Config& config, const std::string& source, Communicator& ranks) const;

  std::string config_;
  std::string checkpoint_;
  std::vector<std::string> overrides_;
  bool json_ = false;
};

int EvalVerb::run() {
  Config config = load_run_config(config_, overrides_);
  std::string source = checkpoint_;
  if (source.empty() && is_run_folder(config_)) source = config_;
  if (source.empty() && config.model.hf.empty()) {
    throw UsageError("eval",
                     "got a configuration without weights, expected a run folder, model.hf "
                     "or --checkpoint; try `weft eval RUN`");
  }
  // Processes of a launcher share the work as in training; one process does it on one rank, which
  // may use all cores.
  if (detect_launch().kind == LaunchKind::threads) use_one_rank(config);
  return run_on_ranks(config, [&](Communicator& ranks) { return run_rank(config, source, ranks); });
}

int EvalVerb::run_rank(const Config& config, const std::string& source, Communicator& ranks) const {
  CompileOptions options;
  options.train = false;
  options.eval = true;
  const std::unique_ptr<Job> owner = open_job(config, options, ranks);
  Job& job = *owner;
  FileSystem files(posix_driver());
  init_weights(job, files, source, ranks);
  std::shared_ptr<const Dataset> dataset;
  on_all_ranks(ranks, Blame::rank, [&] {
    dataset = open_valid_dataset(job.config.data, "", *job.tokenizer);
    if (dataset == nullptr) {
      throw UsageError("eval",
                       "got no validation data; try data.valid = [\"file\"] or "
                       "data.valid_fraction = 0.1");
    }
  });
  const EvalResult result = evaluate(*job.session, *dataset);
  if (ranks.rank() > 0) return 0;
  if (json_) {
    print_json(Json::object(
        {{"loss", result.loss}, {"perplexity", result.perplexity}, {"tokens", result.tokens}}));
  } else {
    print_text(fmt::format("loss {:.6f}  perplexity {:.4f}  tokens {}\n", result.loss,
                           result.perplexity, result.tokens));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_eval_verb() { return std::make_unique<EvalVerb>(); }

}  // namespace weft
