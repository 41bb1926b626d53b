#include "weft/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "weft/base/check.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/session_store.h"
#include "weft/data/loader.h"
#include "weft/optim/optimizer.h"
#include "weft/plan/machine.h"
#include "weft/train/alarm.h"
#include "weft/train/evaluate.h"
#include "weft/train/feed.h"
#include "weft/train/job.h"
#include "weft/train/progress.h"
#include "weft/train/report.h"
#include "weft/train/resume.h"
#include "weft/train/run_folder.h"
#include "weft/train/signals.h"
#include "weft/train/trace_file.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class Trainer {
 public:
  Trainer(Config config, const TrainOptions& options)
      : options_(options), files_(posix_driver()), paths_(options.out) {
    prepare_folder();
    const CompileOptions programs = training_programs(config);
    job_ = open_job(std::move(config), programs);
    open_state();
    open_data();
    write_run_files(files_, paths_, *job_);
    open_records();
    alarms_ = std::make_unique<AlarmRules>(cfg().alarm);
  }

  int run() {
    const StopSignals signals;
    StallWatch watch(cfg().alarm.stall_seconds, cfg().alarm.command);
    Progress progress({.total_steps = cfg().train.steps,
                       .first_step = state_.step + 1,
                       .log_every = cfg().train.log_every});
    progress_ = &progress;
    last_save_ = Clock::now();
    while (state_.step < cfg().train.steps) {
      watch.beat(state_.step + 1);
      one_step();
      const bool last = state_.step == cfg().train.steps;
      if (eval_due(last)) run_eval();
      if (StopSignals::received() != 0) stop_by_signal();
      if (save_due(last)) save();
    }
    progress.phase("saving");
    checkpoints_->retire();
    finish("done");
    return 0;
  }

 private:
  const Config& cfg() const { return job_->config; }
  Session& session() { return *job_->session; }

  void prepare_folder() {
    if (options_.resume.has_value()) {
      const std::string from = options_.resume->empty() ? options_.out : *options_.resume;
      resume_from_ = resolve_checkpoint(files_, from);
      files_.make_folders(paths_.folder);
    } else {
      create_run_folder(files_, paths_);
    }
    set_log_file(paths_.log());
  }

  void open_state() {
    if (resume_from_.empty()) {
      model_ = init_weights(*job_, files_, options_.weights_from);
    } else {
      check_resume_config(read_manifest(files_, resume_from_).config, cfg());
      SessionStore store(session());
      const Manifest manifest = load_checkpoint(files_, store, resume_from_);
      state_ = manifest.train;
      model_ = manifest.model;
      log_info("resumed from {} at step {}, {} samples consumed", resume_from_, state_.step,
               state_.samples_consumed);
    }
    checkpoints_ =
        std::make_unique<CheckpointWriter>(files_, paths_.checkpoints(),
                                           WriterOptions{.keep = cfg().checkpoint.keep,
                                                         .async = job_->plan.snapshot_bytes > 0,
                                                         .wait_for_proof = true});
  }

  void open_data() {
    const DataSets sets = open_datasets(cfg().data, "", *job_->tokenizer);
    valid_ = sets.valid;
    loader_ =
        std::make_unique<Loader>(sets.train, LoaderOptions{.seed = cfg().seed,
                                                           .shuffle = cfg().data.shuffle,
                                                           .global_batch = cfg().train.global_batch,
                                                           .start = state_.samples_consumed});
  }

  void open_records() {
    const bool resumed = !resume_from_.empty();
    recorder_ = std::make_unique<RunRecorder>(paths_, cfg().monitor.tensorboard, state_.step + 1);
    Json environment = environment_json();
    environment.set("backend", cfg().device.backend);
    environment.set("threads", cfg().device.threads);
    Json members = Json::object({{"command", options_.command}, {"environment", environment}});
    if (resumed) members.set("checkpoint", resume_from_);
    recorder_->event(resumed ? EventKind::resume : EventKind::start, state_.step,
                     std::move(members));
    if (cfg().schedule.lr_scaling != "none") {
      log_info("learning rate {} x {} scaling of batch {} / {} = {}", cfg().optimizer.lr,
               cfg().schedule.lr_scaling, cfg().train.global_batch, cfg().schedule.base_batch,
               scaled_peak_lr(cfg()));
    }
    log_info("{} parameters, {:.3g} FLOPs per token, {:.1f} MiB device memory, {} threads",
             job_->plan.model.parameters, job_->plan.model.flops_per_token,
             static_cast<double>(session().used_bytes(Tier::device)) / 0x1p20,
             cfg().device.threads);
  }

  void one_step() {
    const auto begin = Clock::now();
    StepRecord record;
    record.step = state_.step + 1;
    record.epoch = loader_->epoch();
    const GlobalBatch batch = loader_->next();
    record.data_ms = ms_since(begin);
    feed_step(batch, record);
    run_step(record);
    read_step(batch, record);
    record.step_ms = ms_since(begin);
    record.tokens_per_s = static_cast<double>(record.tokens) * 1e3 / record.step_ms;
    record.mfu = record.tokens_per_s * job_->plan.model.flops_per_token / peak_flops();
    state_.step = record.step;
    state_.tokens_total = record.tokens_total;
    state_.samples_consumed = record.samples_total;
    state_.epoch = loader_->epoch();
    recorder_->step(record);
    progress_->step(record);
    react(record);
  }

  void feed_step(const GlobalBatch& batch, StepRecord& record) {
    const int64_t rows = cfg().train.micro_batch;
    for (int64_t micro = 0; micro < cfg().train.accumulation; ++micro) {
      feed_rows(session(), "train", batch, micro * rows, rows, fmt::format(".{}", micro));
    }
    const double scale = cfg().precision.loss_scale.value_or(1.0);
    const auto valid = static_cast<double>(std::max<int64_t>(1, batch.valid_labels));
    feed_scalars(session(), "train", "grad_scale", {scale / valid});
    feed_scalars(session(), "train", "inv_scale", {1.0 / scale});
    const auto updates = static_cast<int64_t>(state_.counters["updates_applied"]);
    const std::vector<double> hyper = update_hyper(cfg(), record.step, updates);
    feed_scalars(session(), "train", "hyper", hyper);
    if (session().has_input("train", "step")) {
      session().set_input("train", "step", &record.step, sizeof(record.step));
    }
    record.lr = hyper[0];
    record.loss_scale = scale;
  }

  void run_step(StepRecord& record) {
    const auto& traced = cfg().monitor.trace_steps;
    std::vector<TraceEvent> events;
    const bool trace = std::find(traced.begin(), traced.end(), record.step) != traced.end();
    if (trace) session().record_trace(&events);
    const RunTimes times = session().run("train");
    if (trace) {
      session().record_trace(nullptr);
      write_trace(paths_.trace(), record.step, job_->plan, "train", events);
    }
    record.compute_ms = times.compute_ms;
    record.update_ms = times.update_ms;
  }

  void read_step(const GlobalBatch& batch, StepRecord& record) {
    double sum = 0;
    for (int64_t micro = 0; micro < cfg().train.accumulation; ++micro) {
      sum += read_scalar(session(), "train", fmt::format("loss.{}", micro));
    }
    record.tokens = batch.valid_labels;
    record.loss = batch.valid_labels > 0 ? sum / static_cast<double>(batch.valid_labels) : 0.0;
    record.grad_norm = read_scalar(session(), "train", "norm");
    record.skipped = read_scalar(session(), "train", "apply") == 0.0;
    record.tokens_total = state_.tokens_total + batch.valid_labels;
    record.samples_total = loader_->samples_consumed();
    record.device_peak_bytes = session().used_bytes(Tier::device);
    record.host_bytes = session().used_bytes(Tier::host);
    if (!record.skipped) state_.counters["updates_applied"] += 1;
    if (record.skipped) state_.counters["skipped_steps"] += 1;
  }

  void react(const StepRecord& record) {
    const AlarmFinding finding = alarms_->judge(record);
    if (finding.verdict == StepVerdict::good) return;
    log_warning("alarm {}: {}", finding.kind, finding.message);
    Json members = Json::object({{"kind", finding.kind}, {"message", finding.message}});
    recorder_->event(EventKind::alarm, record.step, members);
    members.set("type", "alarm");
    members.set("step", record.step);
    members.set("run", paths_.folder);
    run_alarm_command(cfg().alarm.command, members);
    if (finding.verdict == StepVerdict::stop) stop_by_alarm(record, finding);
  }

  /// The newest checkpoint may be the state that just gave a non-finite loss; it then steps aside
  /// so that a resume starts from one that is known to work.
  void stop_by_alarm(const StepRecord& record, const AlarmFinding& finding) {
    checkpoints_->wait();
    const std::string suspect = paths_.checkpoints() + "/" + checkpoint_name(saved_step_);
    if (saved_step_ > 0 && saved_step_ == record.step - 1 &&
        files_.kind(suspect) == PathKind::folder) {
      const std::string aside =
          paths_.checkpoints() + "/diagnostic-" + checkpoint_name(saved_step_);
      files_.remove_all(aside);
      files_.rename(suspect, aside);
      log_warning("{} gave this loss and is kept as {}", suspect, aside);
    } else {
      SessionStore store(session());
      log_warning("state kept as {}", checkpoints_->save_diagnostic(store, meta()));
    }
    finish("stopped by alarm " + finding.kind);
    throw AlarmError("train", fmt::format("{}: {}; try a lower learning rate, or --resume from the "
                                          "last good checkpoint",
                                          finding.kind, finding.message));
  }

  bool eval_due(bool last) const {
    if (valid_ == nullptr) return false;
    const int64_t every = cfg().train.eval_every;
    return last || (every > 0 && state_.step % every == 0);
  }

  void run_eval() {
    progress_->phase("evaluating");
    const EvalResult result = evaluate(session(), *valid_);
    const EvalRecord record{state_.step, result.loss, result.perplexity, result.tokens};
    recorder_->eval(record);
    progress_->eval(record);
    progress_->phase("");
  }

  bool save_due(bool last) const {
    const CheckpointConfig& config = cfg().checkpoint;
    if (last) return config.final_save;
    if (config.every_steps > 0 && state_.step % config.every_steps == 0) return true;
    return config.every_minutes > 0 && ms_since(last_save_) > config.every_minutes * 6e4;
  }

  CheckpointMeta meta() const { return {state_, config_json(cfg()), model_}; }

  void save() {
    progress_->phase("saving");
    SessionStore store(session());
    const std::string path = checkpoints_->save(store, meta());
    saved_step_ = state_.step;
    last_save_ = Clock::now();
    recorder_->event(EventKind::checkpoint, state_.step, Json::object({{"path", path}}));
    progress_->phase("");
  }

  void stop_by_signal() {
    if (saved_step_ != state_.step) save();
    checkpoints_->retire();
    finish("stopped by a signal");
    throw Interrupted("train", fmt::format("stopped by {} after step {}, saved; try --resume to "
                                           "continue",
                                           StopSignals::received() == SIGINT ? "SIGINT" : "SIGTERM",
                                           state_.step));
  }

  void finish(const std::string& outcome) {
    recorder_->event(EventKind::end, state_.step, Json::object({{"outcome", outcome}}));
    write_report(paths_.folder);
    log_info("{} at step {}; report {}/report.html", outcome, state_.step, paths_.folder);
  }

  double peak_flops() const {
    return default_cpu_machine(static_cast<int>(cfg().device.threads))
        .flops(parse_dtype(cfg().precision.compute).value());
  }

  TrainOptions options_;
  FileSystem files_;
  RunPaths paths_;
  std::unique_ptr<Job> job_;
  std::string resume_from_;
  ModelInfo model_;
  TrainState state_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<Loader> loader_;
  std::shared_ptr<const Dataset> valid_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<AlarmRules> alarms_;
  Progress* progress_ = nullptr;
  Clock::time_point last_save_;
  int64_t saved_step_ = 0;
};

}  // namespace

int train(Config config, const TrainOptions& options) {
  Trainer trainer(std::move(config), options);
  return trainer.run();
}

}  // namespace weft
