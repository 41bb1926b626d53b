#include "weft/train/job.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/check.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/hf_import.h"
#include "weft/checkpoint/session_store.h"
#include "weft/io/hf_folder.h"
#include "weft/plan/build.h"
#include "weft/train/agree.h"
#include "weft/train/ranks.h"
#include "weft/train/shares.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Tokenizer> try_load_tokenizer(const Config& config, bool required) {
  try {
    return load_tokenizer(tokenizer_path(config));
  } catch (const InputError&) {
    if (required) throw;
    return nullptr;
  }
}

bool vocabulary_is_given(const ModelConfig& model) {
  return !model.hf.empty() || model.vocab_size.has_value();
}

std::string exported_dtype(const Config& config) {
  const auto dtype = parse_dtype(config.precision.compute);
  return dtype == DType::bf16 ? "bf16" : dtype == DType::f16 ? "f16" : "f32";
}

/// Background saves copy the state to host memory first: those bytes belong to the plan. Without
/// room for them under memory.host, saves stream from the device instead.
void charge_snapshot(const Config& job_config, Plan& plan) {
  const CheckpointConfig& config = job_config.checkpoint;
  const bool saves = config.final_save || config.every_steps > 0 || config.every_minutes > 0;
  if (!saves || !config.async) return;
  TierUse& host = plan.tiers[static_cast<size_t>(Tier::host)];
  const int64_t bytes = snapshot_bytes(plan);
  if (host.budget > 0 && host.peak_bytes + bytes > host.budget) {
    plan.notes.push_back(fmt::format(
        "checkpoints are written in the foreground: a snapshot of {} bytes exceeds memory.host",
        bytes));
    return;
  }
  host.peak_bytes += bytes;
  host.by_class[static_cast<size_t>(MemoryClass::workspace)] += bytes;
  plan.snapshot_bytes = bytes;
}

/// plan_job on every rank, with the tokenizer cut to the model; refuses plans that do not fit.
std::unique_ptr<Job> plan_on_ranks(Config config, const CompileOptions& options,
                                   Communicator& ranks) {
  std::unique_ptr<Job> owner;
  config.device.threads = agree_threads(config.device, ranks);
  config.memory.host = agree_host_budget(config, ranks);
  // Before anything starts a thread or touches memory.
  const std::vector<int> own = agree_cores(static_cast<int>(config.device.threads), ranks);
  auto cores = std::make_unique<CoreBinding>(own);
  on_all_ranks(ranks, Blame::rank, [&] {
    owner = std::make_unique<Job>(plan_job(std::move(config), options));
    Job& job = *owner;
    if (!job.tokenizer) job.tokenizer = load_tokenizer(tokenizer_path(job.config));
    job.text_ids = std::min<int64_t>(job.tokenizer->vocab_size(), job.spec.vocab_size);
    job.tokenizer =
        limit_vocabulary(std::move(job.tokenizer), static_cast<int32_t>(job.spec.vocab_size));
  });
  owner->cores = std::move(cores);
  on_all_ranks(ranks, Blame::job, [&] { require_fits(owner->plan); });
  require_memory(owner->plan, ranks);
  return owner;
}

/// Where an export finds the tokenizer's files; "" for the byte tokenizer.
std::string tokenizer_folder(const Config& config) {
  const std::string path = tokenizer_path(config);
  if (path == "bytes") return "";
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return fs::is_directory(absolute) ? absolute.string() : absolute.parent_path().string();
}

bool holds_weights(const std::string& folder) {
  return fs::exists(folder + "/model.safetensors") ||
         fs::exists(folder + "/model.safetensors.index.json");
}

}  // namespace

std::string tokenizer_path(const Config& config) {
  const std::string& name = config.data.tokenizer;
  if (name == "bytes" || fs::path(name).is_absolute()) return name;
  return (fs::path(config.path).parent_path() / name).string();
}

Job plan_job(Config config, const CompileOptions& options) {
  Job job;
  job.config = std::move(config);
  job.config.device.threads =
      planned_threads(job.config.device, world_of(job.config.parallel), detect_launch());
  job.tokenizer = try_load_tokenizer(job.config, !vocabulary_is_given(job.config.model));
  std::optional<int64_t> vocabulary;
  if (job.tokenizer) vocabulary = job.tokenizer->vocab_size();
  job.spec = make_model_spec(job.config.model, vocabulary);
  job.backend = make_backend(job.config.device.backend,
                             {.threads = static_cast<int>(job.config.device.threads)});
  job.plan = compile(job.config, job.spec, *job.backend, options);
  if (options.train) charge_snapshot(job.config, job.plan);
  return job;
}

namespace {

std::unique_ptr<Session> make_session(const Job& job, Communicator* ranks,
                                      const ColdOptions& cold) {
  return std::make_unique<Session>(job.plan, *job.backend, ranks,
                                   cold.folders.empty() ? nullptr : &cold);
}

}  // namespace

ClusterPlan plan_cluster(const Job& job, const CompileOptions& options) {
  ClusterPlan cluster = compile_ranks(job.config, job.spec, *job.backend, options);
  if (!options.train) return cluster;
  for (Plan& plan : cluster.plans) charge_snapshot(job.config, plan);
  return cluster;
}

std::unique_ptr<Job> open_job(Config config, const CompileOptions& options) {
  const std::unique_ptr<Communicator> alone = make_fake_communicator(0, 1);
  std::unique_ptr<Job> job = plan_on_ranks(std::move(config), options, *alone);
  job->session = make_session(*job, nullptr, settle_cold(job->config, job->plan, {}, *alone));
  return job;
}

std::unique_ptr<Job> open_job(Config config, CompileOptions options, Communicator& ranks,
                              const ColdSetup& cold) {
  options.rank = ranks.rank();
  std::unique_ptr<Job> job = plan_on_ranks(std::move(config), options, ranks);
  const ColdOptions settled = settle_cold(job->config, job->plan, cold, ranks);
  job->session = make_session(*job, &ranks, settled);
  return job;
}

CompileOptions training_programs(const Config& config) {
  CompileOptions options;
  options.ranks_per_node = ranks_per_node();
  options.eval = !config.data.valid.empty() || config.data.valid_fraction > 0;
  return options;
}

ModelInfo init_weights(Job& job, FileSystem& files, const std::string& source) {
  const std::unique_ptr<Communicator> alone = make_fake_communicator(0, 1);
  return init_weights(job, files, source, *alone);
}

ModelInfo init_weights(Job& job, FileSystem& files, const std::string& source,
                       Communicator& ranks) {
  ModelInfo info;
  info.hf_config = hf_config_json(job.spec, "float32");
  info.dtype = exported_dtype(job.config);
  info.source = tokenizer_folder(job.config);
  job.session->init_states(job.config.seed);
  SessionStore store(*job.session);
  const std::string& hf = job.config.model.hf;
  const bool from_hf_source = !source.empty() && fs::exists(source + "/config.json");
  if (!source.empty() && !from_hf_source) {
    const std::string checkpoint =
        on_first_rank(ranks, [&] { return resolve_checkpoint(files, source); });
    const Manifest manifest =
        load_checkpoint(files, store, checkpoint, {.weights_only = true}, &ranks);
    log_info("weights from {} (step {})", checkpoint, manifest.train.step);
    return info;
  }
  const std::string folder = from_hf_source ? source : hf;
  if (folder.empty() || (!from_hf_source && !holds_weights(folder))) {
    log_info("weights drawn from seed {}", job.config.seed);
    return info;
  }
  const ImportReport report = import_hf_weights(files, store, folder, &ranks);
  note_import(report, folder, info);
  log_info("weights from {}: {} tensors, {}", folder, report.tensors, report.dtype);
  return info;
}

bool is_run_folder(const std::string& path) {
  return fs::is_directory(path) && fs::exists(path + "/config.toml");
}

Config load_run_config(const std::string& config_or_run,
                       const std::vector<std::string>& overrides) {
  if (fs::is_directory(config_or_run) && !is_run_folder(config_or_run)) {
    throw InputError(config_or_run,
                     "got a folder without config.toml, expected a run folder or a "
                     "configuration file");
  }
  return load_config(is_run_folder(config_or_run) ? config_or_run + "/config.toml" : config_or_run,
                     overrides);
}

}  // namespace weft
