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
#include "weft/train/agree.h"
#include "weft/train/evaluate.h"
#include "weft/train/expert_stats.h"
#include "weft/train/feed.h"
#include "weft/train/job.h"
#include "weft/train/loss_scale.h"
#include "weft/train/overflow.h"
#include "weft/train/pending_update.h"
#include "weft/train/ranks.h"
#include "weft/train/reporter.h"
#include "weft/train/resume.h"
#include "weft/train/signals.h"
#include "weft/train/vote.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// A batch, and where the loader stood around it.
struct NextBatch {
  GlobalBatch batch;
  int64_t epoch = 0;          // of its samples
  int64_t after_samples = 0;  // consumed with it
  int64_t after_epoch = 0;    // of the sample behind it
  double wait_ms = 0;
  std::exception_ptr error;  // instead of the batch
};

class Trainer {
 public:
  Trainer(Config config, const TrainOptions& options, Communicator& ranks)
      : options_(options),
        ranks_(ranks),
        files_(posix_driver()),
        paths_(options.out),
        reporter_(files_, paths_, ranks.rank() == 0) {
    prepare_folder();
    const CompileOptions programs = training_programs(config);
    job_ = open_job(std::move(config), programs, ranks_, {paths_.cold(), options_.cold});
    scale_.emplace(cfg().precision);
    open_state();
    on_all_ranks(ranks_, Blame::rank, [&] { open_data(); });
    on_first_rank(ranks_, [&] {
      reporter_.begin(*job_, state_.step, resume_from_, options_.command);
      return std::string();
    });
    alarms_ = std::make_unique<AlarmRules>(cfg().alarm, cfg().precision.compute == "fp16");
  }

  int run() {
    const StopSignals signals;
    const bool first_of_process = ranks_.rank() == 0 || detect_launch().kind != LaunchKind::threads;
    StallWatch watch(first_of_process ? cfg().alarm.stall_seconds : 0, cfg().alarm.command);
    last_save_ = Clock::now();
    pending_ = std::make_unique<PendingUpdate>(session());
    traffic_ = session().tier_traffic();
    watch.beat(state_.step + 1);
    if (state_.step < cfg().train.steps) {
      take_batch();
      on_all_ranks(ranks_, Blame::rank, [&] {
        if (next_.error) std::rethrow_exception(next_.error);
      });
    }
    while (state_.step < cfg().train.steps) {
      watch.beat(state_.step + 1);
      Decision decision = one_step();
      const bool last = state_.step == cfg().train.steps;
      if (eval_due(last)) {
        run_eval();
        decision.signal = vote_signal(ranks_, StopSignals::received());
      } else if (ranks_.world() == 1) {
        decision.signal = StopSignals::received();
      }
      if (decision.signal != 0) stop_by_signal(decision.signal);
      if (save_due(last, decision.save_by_time)) save();
      throw_verdict(ranks_, decision.next_batch, next_.error);
    }
    reporter_.phase("saving");
    checkpoints_->retire();
    finish("done");
    return 0;
  }

 private:
  const Config& cfg() const { return job_->config; }
  Session& session() { return *job_->session; }

  void prepare_folder() {
    resume_from_ = on_first_rank(ranks_, [&] {
      std::string from;
      if (options_.resume.has_value()) {
        from =
            resolve_checkpoint(files_, options_.resume->empty() ? options_.out : *options_.resume);
        files_.make_folders(paths_.folder);
      } else {
        create_run_folder(files_, paths_);
      }
      reporter_.open_log();
      return from;
    });
  }

  void open_state() {
    if (resume_from_.empty()) {
      model_ = init_weights(*job_, files_, options_.weights_from, ranks_);
    } else {
      on_all_ranks(ranks_, Blame::rank,
                   [&] { check_resume_config(read_manifest(files_, resume_from_).config, cfg()); });
      SessionStore store(session());
      const Manifest manifest = load_checkpoint(files_, store, resume_from_, {}, &ranks_);
      state_ = manifest.train;
      if (!cfg().precision.dynamic.reset) scale_->restore(state_.scaler);
      model_ = manifest.model;
      log_info("resumed from {} at step {}, {} samples consumed", resume_from_, state_.step,
               state_.samples_consumed);
    }
    checkpoints_ =
        std::make_unique<CheckpointWriter>(files_, paths_.checkpoints(),
                                           WriterOptions{.keep = cfg().checkpoint.keep,
                                                         .async = job_->plan.snapshot_bytes > 0,
                                                         .wait_for_proof = true},
                                           &ranks_);
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

  void take_batch() {
    const auto begin = Clock::now();
    next_ = NextBatch{};
    try {
      next_.epoch = loader_->epoch();
      next_.batch = loader_->next();
      next_.after_samples = loader_->samples_consumed();
      next_.after_epoch = loader_->epoch();
    } catch (...) {
      next_.error = std::current_exception();
    }
    next_.wait_ms = ms_since(begin);
  }

  /// The step itself, then the vote. The batch of the next step is taken before the vote, so that
  /// one message says all.
  Decision one_step() {
    const auto begin = Clock::now();
    const NextBatch now = std::move(next_);
    StepRecord record;
    record.step = state_.step + 1;
    record.epoch = now.epoch;
    record.data_ms = now.wait_ms;
    feed_step(now.batch, record);
    run_step(record);
    read_step(now, record);
    state_.step = record.step;
    state_.tokens_total = record.tokens_total;
    state_.samples_consumed = record.samples_total;
    state_.epoch = now.after_epoch;
    next_ = NextBatch{};
    if (state_.step < cfg().train.steps) take_batch();
    const bool late = cfg().checkpoint.every_minutes > 0 &&
                      ms_since(last_save_) > cfg().checkpoint.every_minutes * 6e4;
    const bool overflowed = record.skipped && overflowed_here(session());
    Decision decision =
        vote(ranks_, record, {StopSignals::received(), late, next_.error, overflowed});
    if (record.skipped) {
      record.overflow = Overflow{std::isfinite(record.loss) ? "backward" : "forward",
                                 overflowed_tensor(session()), decision.overflow_rank};
    }
    record.step_ms = now.wait_ms + ms_since(begin) - next_.wait_ms;
    record.tokens_per_s = static_cast<double>(record.tokens) * 1e3 / record.step_ms;
    record.mfu = record.tokens_per_s * job_->plan.model.flops_per_token / peak_flops();
    reporter_.step(record);
    react(record);
    return decision;
  }

  void feed_step(const GlobalBatch& batch, StepRecord& record) {
    const int64_t rows = cfg().train.micro_batch;
    for (int64_t micro = 0; micro < cfg().train.accumulation; ++micro) {
      feed_rows(session(), "train", batch, first_row(job_->plan, micro, rows), rows,
                fmt::format(".{}", micro));
    }
    const double scale = scale_->value();
    const auto valid = static_cast<double>(std::max<int64_t>(1, batch.valid_labels));
    feed_scalars(session(), "train", "grad_scale", {scale / valid});
    feed_scalars(session(), "train", "inv_scale", {1.0 / scale});
    if (session().has_input("train", "aux_scale")) {
      const double share = aux_share(job_->spec, cfg().train.global_batch);
      feed_scalars(session(), "train", "aux_scale", {scale * share});
    }
    const auto updates = static_cast<int64_t>(state_.counters["updates_applied"]);
    const std::vector<double> hyper = update_hyper(cfg(), updates);
    pending_->feed(hyper, updates + 1);
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
      reporter_.trace(*job_, record.step, events);
    }
    record.compute_ms = times.compute_ms;
    record.comm_ms = times.comm_ms;
    record.comm_exposed_ms = times.comm_exposed_ms;
    record.copy_exposed_ms = times.copy_exposed_ms;
    record.io_exposed_ms = times.io_exposed_ms;
    record.update_ms = times.update_ms;
  }

  void read_step(const NextBatch& now, StepRecord& record) {
    const GlobalBatch& batch = now.batch;
    double sum = 0;
    for (int64_t micro = 0; micro < cfg().train.accumulation; ++micro) {
      sum += read_scalar(session(), "train", fmt::format("loss.{}", micro));
    }
    record.tokens = batch.valid_labels;
    record.loss = batch.valid_labels > 0 ? sum / static_cast<double>(batch.valid_labels) : 0.0;
    read_expert_stats(session(), job_->spec, cfg().train.global_batch, record);
    record.grad_norm = read_scalar(session(), "train", "norm");
    record.skipped = read_scalar(session(), "train", "apply") == 0.0;
    record.tokens_total = state_.tokens_total + batch.valid_labels;
    record.samples_total = now.after_samples;
    record.device_peak_bytes = session().used_bytes(Tier::device);
    record.host_bytes = session().used_bytes(Tier::host);
    record.nvme_bytes = session().used_bytes(Tier::nvme);
    const TierTraffic traffic = session().tier_traffic();
    record.nvme_read_bytes = traffic.nvme_read - traffic_.nvme_read;
    record.nvme_write_bytes = traffic.nvme_write - traffic_.nvme_write;
    traffic_ = traffic;
    state_.counters[record.skipped ? "skipped_steps" : "updates_applied"] += 1;
    scale_->update(record.skipped);
    state_.scaler = scale_->state();
  }

  void react(const StepRecord& record) {
    const AlarmFinding finding = alarms_->judge(record, scale_->exhausted());
    if (finding.verdict == StepVerdict::good) return;
    if (finding.verdict == StepVerdict::note) return reporter_.note(finding);
    reporter_.alarm(record.step, finding);
    if (finding.verdict == StepVerdict::stop) stop_by_alarm(record, finding);
  }

  /// The newest checkpoint may be the state that just gave a non-finite loss; it then steps aside
  /// so that a resume starts from one that is known to work.
  void stop_by_alarm(const StepRecord& record, const AlarmFinding& finding) {
    checkpoints_->wait();
    const bool suspect = saved_step_ > 0 && saved_step_ == record.step - 1;
    if (!suspect || on_first_rank(ranks_, [&] { return set_aside(saved_step_); }).empty()) {
      pending_->flush();
      SessionStore store(session());
      const std::string path = checkpoints_->save_diagnostic(store, meta());
      if (ranks_.rank() == 0) log_warning("state kept as {}", path);
    }
    const std::string advice = remedy(record);
    finish("stopped by alarm " + finding.kind);
    throw AlarmError("train", fmt::format("{}: {}; {}", finding.kind, finding.message, advice));
  }

  std::string remedy(const StepRecord& record) {
    if (cfg().precision.compute != "fp16") {
      return "try a lower learning rate, or --resume from the last good checkpoint";
    }
    if (std::isfinite(record.loss)) {
      return "try a lower learning rate, a smaller precision.dynamic.min_scale, or "
             "precision.compute = \"bf16\"";
    }
    const std::string weights = overflowed_weights(session());
    return fmt::format(
        "the overflow comes from the forward pass, which no loss scale changes{}; "
        "try precision.compute = \"bf16\"",
        weights.empty() ? "" : ": " + weights);
  }

  /// Renames the checkpoint of `step`; "" when there is none.
  std::string set_aside(int64_t step) {
    const std::string suspect = paths_.checkpoints() + "/" + checkpoint_name(step);
    if (files_.kind(suspect) != PathKind::folder) return "";
    std::string aside = paths_.checkpoints() + "/diagnostic-" + checkpoint_name(step);
    files_.remove_all(aside);
    files_.rename(suspect, aside);
    log_warning("{} gave this loss and is kept as {}", suspect, aside);
    return aside;
  }

  bool eval_due(bool last) const {
    if (valid_ == nullptr) return false;
    const int64_t every = cfg().train.eval_every;
    return last || (every > 0 && state_.step % every == 0);
  }

  void run_eval() {
    reporter_.phase("evaluating");
    pending_->flush();
    const EvalResult result = evaluate(session(), *valid_);
    const EvalRecord record{state_.step, result.loss, result.perplexity, result.tokens};
    reporter_.eval(record);
    reporter_.phase("");
  }

  bool save_due(bool last, bool by_time) const {
    const CheckpointConfig& config = cfg().checkpoint;
    if (last) return config.final_save;
    return by_time || (config.every_steps > 0 && state_.step % config.every_steps == 0);
  }

  CheckpointMeta meta() const { return {state_, config_json(cfg()), model_}; }

  void save() {
    reporter_.phase("saving");
    pending_->flush();
    SessionStore store(session());
    const std::string path = checkpoints_->save(store, meta());
    saved_step_ = state_.step;
    last_save_ = Clock::now();
    reporter_.saved(state_.step, path);
    reporter_.phase("");
  }

  void stop_by_signal(int signal) {
    if (saved_step_ != state_.step) save();
    checkpoints_->retire();
    finish("stopped by a signal");
    throw Interrupted("train", fmt::format("stopped by {} after step {}, saved; try --resume to "
                                           "continue",
                                           signal == SIGINT ? "SIGINT" : "SIGTERM", state_.step));
  }

  void finish(const std::string& outcome) {
    on_first_rank(ranks_, [&] {
      reporter_.end(state_.step, outcome);
      return std::string();
    });
  }

  /// Of all devices.
  double peak_flops() const {
    return ranks_.world() * default_cpu_machine(static_cast<int>(cfg().device.threads))
                                .flops(parse_dtype(cfg().precision.compute).value());
  }

  TrainOptions options_;
  Communicator& ranks_;
  FileSystem files_;
  RunPaths paths_;
  RunReporter reporter_;
  std::unique_ptr<Job> job_;
  std::string resume_from_;
  ModelInfo model_;
  TrainState state_;
  std::optional<LossScale> scale_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<Loader> loader_;
  std::shared_ptr<const Dataset> valid_;
  std::unique_ptr<AlarmRules> alarms_;
  NextBatch next_;
  Clock::time_point last_save_;
  std::unique_ptr<PendingUpdate> pending_;
  TierTraffic traffic_;  // up to the last step
  int64_t saved_step_ = 0;
};

}  // namespace

int train(const Config& config, const TrainOptions& options) {
  return run_on_ranks(config, [&](Communicator& ranks) {
    Trainer trainer(config, options, ranks);
    return trainer.run();
  });
}

}  // namespace weft
