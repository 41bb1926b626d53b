#include "weft/train/reporter.h"

#include <algorithm>

#include "weft/base/log.h"
#include "weft/optim/optimizer.h"
#include "weft/train/ranks.h"
#include "weft/train/report.h"
#include "weft/train/trace_file.h"

namespace weft {

RunReporter::RunReporter(FileSystem& files, RunPaths paths, bool speaks)
    : files_(files), paths_(std::move(paths)), speaks_(speaks) {}

RunReporter::~RunReporter() = default;

void RunReporter::open_log() {
  if (speaks_) set_log_file(paths_.log());
}

void RunReporter::begin(const Job& job, int64_t done, const std::string& checkpoint,
                        const std::string& command) {
  job_ = &job;
  if (!speaks_) return;
  const Config& config = job.config;
  const bool resumed = !checkpoint.empty();
  write_run_files(files_, paths_, job);
  recorder_ = std::make_unique<RunRecorder>(paths_, config.monitor.tensorboard, done + 1);
  Json environment = environment_json();
  environment.set("backend", config.device.backend);
  environment.set("threads", config.device.threads);
  if (job.plan.world > 1) environment.set("ranks", int64_t{job.plan.world});
  Json members = Json::object({{"command", command}, {"environment", environment}});
  if (resumed) members.set("checkpoint", checkpoint);
  recorder_->event(resumed ? EventKind::resume : EventKind::start, done, std::move(members));
  log_facts(job);
  progress_.emplace(ProgressOptions{.total_steps = config.train.steps,
                                    .first_step = done + 1,
                                    .log_every = config.train.log_every});
}

void RunReporter::log_facts(const Job& job) const {
  const Config& config = job.config;
  if (config.schedule.lr_scaling != "none") {
    log_info("learning rate {} x {} scaling of batch {} / {} = {}", config.optimizer.lr,
             config.schedule.lr_scaling, config.train.global_batch, config.schedule.base_batch,
             scaled_peak_lr(config));
  }
  const std::string ranks = job.plan.world > 1 ? fmt::format(", {} ranks", job.plan.world) : "";
  log_info("{} parameters, {:.3g} FLOPs per token, {:.1f} MiB device memory, {} threads{}",
           job.plan.model.parameters, job.plan.model.flops_per_token,
           static_cast<double>(job.session->used_bytes(Tier::device)) / 0x1p20,
           config.device.threads, ranks);
  for (const std::string& axis : axes_across_nodes(job.plan, job.plan.ranks_per_node)) {
    // Activations of every layer travel along op.
    log_line(axis == "op" ? LogLevel::warning : LogLevel::info,
             fmt::format("axis {} crosses nodes of {} ranks{}", axis, job.plan.ranks_per_node,
                         axis == "op" ? "; try a parallel.op that divides them" : ""));
  }
}

void RunReporter::phase(std::string_view text) {
  if (progress_) progress_->phase(text);
}

void RunReporter::step(const StepRecord& record) {
  if (!speaks_) return;
  recorder_->step(record);
  progress_->step(record);
}

void RunReporter::trace(const Job& job, int64_t step, const std::vector<TraceEvent>& events) const {
  const MachineSpec machine =
      default_cpu_machine(static_cast<int>(std::max<int64_t>(1, job.config.device.threads)));
  write_trace(paths_.trace(), step, {job.plan, "train", events}, machine);
}

void RunReporter::eval(const EvalRecord& record) {
  if (!speaks_) return;
  recorder_->eval(record);
  progress_->eval(record);
}

void RunReporter::saved(int64_t step, const std::string& path) {
  if (speaks_) recorder_->event(EventKind::checkpoint, step, Json::object({{"path", path}}));
}

void RunReporter::note(const AlarmFinding& finding) {
  if (speaks_) log_warning("{}", finding.message);
}

void RunReporter::alarm(int64_t step, const AlarmFinding& finding) {
  if (!speaks_) return;
  log_warning("alarm {}: {}", finding.kind, finding.message);
  Json members = Json::object({{"kind", finding.kind}, {"message", finding.message}});
  recorder_->event(EventKind::alarm, step, members);
  members.set("type", "alarm");
  members.set("step", step);
  members.set("run", paths_.folder);
  run_alarm_command(job_->config.alarm.command, members);
}

void RunReporter::end(int64_t step, const std::string& outcome) {
  if (!speaks_) return;
  recorder_->event(EventKind::end, step, Json::object({{"outcome", outcome}}));
  write_report(paths_.folder);
  log_info("{} at step {}; report {}/report.html", outcome, step, paths_.folder);
}

}  // namespace weft
