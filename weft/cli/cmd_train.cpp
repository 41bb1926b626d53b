// weft train: trains a model into a run folder.
#include <filesystem>

#include "weft/base/error.h"
#include "weft/cli/verb.h"
#include "weft/train/job.h"
#include "weft/train/trainer.h"

namespace weft {
namespace {

class TrainVerb : public Verb {
 public:
  std::string_view name() const override { return "train"; }
  std::string_view help() const override { return "train a model into a run folder"; }
  void declare(OptionList& options) override {
    options.positional("CONFIG", &config_, "configuration file, or the run folder to resume");
    options.value("--out", &train_.out, "DIR",
                  "run folder; default runs/<name of the configuration>");
    options.list("--set", &overrides_, "KEY=VALUE", "override one key; repeatable");
    options.optional_value("--resume", &train_.resume, "DIR_OR_CHECKPOINT",
                           "continue: the newest complete checkpoint of --out, or the given one");
    options.value("--weights-from", &train_.weights_from, "PATH",
                  "start from the weights of a checkpoint, run or Hugging Face folder");
  }
  bool runs_on_all_ranks() const override { return true; }
  int run() override {
    if (train_.resume && !train_.weights_from.empty()) {
      throw UsageError("train", "got both --resume and --weights-from, expected one of them");
    }
    const Config config = load_run_config(config_, overrides_);
    if (train_.out.empty()) {
      train_.out = is_run_folder(config_)
                       ? config_
                       : "runs/" + std::filesystem::path(config_).stem().string();
    }
    train_.command = "weft train " + config_;
    for (const std::string& item : overrides_) train_.command += " --set " + item;
    train_.command += " --out " + train_.out;
    return train(config, train_);
  }

 private:
  std::string config_;
  std::vector<std::string> overrides_;
  TrainOptions train_;
};

}  // namespace

std::unique_ptr<Verb> make_train_verb() { return std::make_unique<TrainVerb>(); }

}  // namespace weft
