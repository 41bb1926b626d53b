// weft plan: compiles, runs nothing, shows what would happen.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/cli/verb.h"
#include "weft/train/job.h"
#include "weft/train/ranks.h"

namespace weft {
namespace {

class PlanVerb : public Verb {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view help() const override {
    return "compile a configuration, run nothing: bytes per tier, work, predicted time";
  }
  void declare(OptionList& options) override {
    options.positional("CONFIG", &config_, "configuration file or run folder");
    options.list("--set", &overrides_, "KEY=VALUE", "override one key; repeatable");
    options.flag("--json", &json_, "print the plan document as JSON");
    options.value(
        "--dump", &stage_, "STAGE",
        "print the program after a stage: model, expand, fuse, step or plan; with several "
        "ranks also cut, shard (strategies, placements, moves) and local");
    options.flag("--full", &full_, "with --json: every buffer and step");
  }
  int run() override;

 private:
  std::string config_;
  std::vector<std::string> overrides_;
  std::string stage_;
  bool json_ = false;
  bool full_ = false;
};

int PlanVerb::run() {
  const std::string_view stages[] = {"",       "model", "cut",  "shard", "local",
                                     "expand", "fuse",  "step", "plan"};
  if (std::find(std::begin(stages), std::end(stages), stage_) == std::end(stages)) {
    throw UsageError(
        "plan --dump",
        fmt::format("got \"{}\", expected model, cut, shard, local, expand, fuse, step or "
                    "plan",
                    stage_));
  }
  if (json_ && !stage_.empty()) {
    throw UsageError("plan", "got both --json and --dump, expected one of them");
  }
  const auto begin = std::chrono::steady_clock::now();
  Config config = load_run_config(config_, overrides_);
  log_axis_reach(config.parallel, detect_launch());
  CompileOptions options = training_programs(config);
  if (!stage_.empty()) {
    options.dump = [&](std::string_view stage, const std::string& text) {
      if (stage == stage_) print_text(text);
    };
  }
  const Job job = plan_job(std::move(config), options);
  if (json_) {
    print_json(full_ ? plan_json(job.plan) : plan_summary_json(job.plan));
  } else if (stage_.empty()) {
    print_text(plan_text(job.plan));
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    log_info("planned in {:.0f} ms", spent.count());
  }
  return static_cast<int>(job.plan.fits ? ExitCode::done : ExitCode::resource);
}

}  // namespace

std::unique_ptr<Verb> make_plan_verb() { return std::make_unique<PlanVerb>(); }

}  // namespace weft
