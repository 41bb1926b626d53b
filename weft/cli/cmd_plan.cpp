// weft plan: compiles, runs nothing, shows what would happen.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/cli/verb.h"
#include "weft/train/job.h"
#include "weft/train/ranks.h"

namespace weft {
namespace {

/// In the order in which a program passes through them; some only with several ranks, with vertical
/// order, recompute or tiers.
constexpr std::string_view kStages[] = {"model",    "cut",       "shard", "local", "expand", "fuse",
                                        "vertical", "recompute", "step",  "tiers", "plan"};

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
    options.flag("--full", &full_, "with --json: every buffer and step of rank 0");
    options.value("--ranks-per-node", &ranks_per_node_, "N",
                  "consecutive ranks that share a node; default: those the launcher has put here, "
                  "else all");
  }
  int run() override;

 private:
  std::string config_;
  std::vector<std::string> overrides_;
  std::string stage_;
  bool json_ = false;
  bool full_ = false;
  int64_t ranks_per_node_ = 0;
};

int PlanVerb::run() {
  const auto known = std::find(std::begin(kStages), std::end(kStages), stage_);
  if (!stage_.empty() && known == std::end(kStages)) {
    throw UsageError("plan --dump", fmt::format("got \"{}\", expected one of {}", stage_,
                                                fmt::join(kStages, ", ")));
  }
  if (json_ && !stage_.empty()) {
    throw UsageError("plan", "got both --json and --dump, expected one of them");
  }
  const auto begin = std::chrono::steady_clock::now();
  Config config = load_run_config(config_, overrides_);
  CompileOptions options = training_programs(config);
  options.ranks_per_node = ranks_per_node_ > 0 ? ranks_per_node_ : ranks_per_node();
  if (!stage_.empty()) {
    options.dump = [&](std::string_view stage, const std::string& text) {
      if (stage == stage_) print_text(text);
    };
  }
  const Job job = plan_job(std::move(config), options);
  options.dump = nullptr;
  const bool several = job.plan.world > 1 && stage_.empty() && !full_;
  const ClusterPlan cluster = several ? plan_cluster(job, options) : ClusterPlan{};
  const bool fits = several ? cluster.fits() : job.plan.fits;
  if (json_) {
    print_json(full_     ? plan_json(job.plan)
               : several ? plan_summary_json(cluster)
                         : plan_summary_json(job.plan));
  } else if (stage_.empty()) {
    print_text(plan_text(job.plan));
    if (several) print_text(ranks_table(cluster));
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    log_info("planned in {:.0f} ms", spent.count());
  }
  return static_cast<int>(fits ? ExitCode::done : ExitCode::resource);
}

}  // namespace

std::unique_ptr<Verb> make_plan_verb() { return std::make_unique<PlanVerb>(); }

}  // namespace weft
