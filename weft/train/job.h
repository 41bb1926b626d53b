// A Job: everything a verb needs to run a model, from the configuration to a Session, put
// together in one place for train, eval, generate and plan.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "weft/backend/backend.h"
#include "weft/checkpoint/manifest.h"
#include "weft/comm/communicator.h"
#include "weft/compile/pipeline.h"
#include "weft/config/config.h"
#include "weft/data/tokenizer.h"
#include "weft/io/file.h"
#include "weft/runtime/session.h"
#include "weft/train/cold_setup.h"
#include "weft/train/cores.h"

namespace weft {

struct Job {
  std::unique_ptr<CoreBinding> cores;  // null for plans; of the thread that opened the job
  Config config;
  std::unique_ptr<Tokenizer> tokenizer;  // null only for plans without a readable tokenizer
  int64_t text_ids = 0;                  // ids of the model that the tokenizer has text for
  ModelSpec spec;
  std::unique_ptr<Backend> backend;
  Plan plan;
  std::unique_ptr<Session> session;
};

/// Tokenizer path as given, resolved against the folder of the configuration file.
std::string tokenizer_path(const Config& config);

/// Model and plan; touches neither devices nor data nor weights. A tokenizer that cannot be read is
/// an error only when vocab_size depends on it.
Job plan_job(Config config, const CompileOptions& options);

/// The plans of all ranks with what checkpoints add to them, as the plan verb and plan.json show.
ClusterPlan plan_cluster(const Job& job, const CompileOptions& options);

/// plan_job, then refuses a plan that does not fit (exit 4, with the numbers) and makes the
/// session. For a configuration of one rank.
std::unique_ptr<Job> open_job(Config config, const CompileOptions& options);
/// Same for the part of one rank; called by all ranks. `ranks` must outlive the job.
std::unique_ptr<Job> open_job(Config config, CompileOptions options, Communicator& ranks,
                              const ColdSetup& cold = {});

/// Programs that `train` compiles: the step, and the evaluation when there is validation data.
CompileOptions training_programs(const Config& config);

/// Fills the weights: from `source` (a checkpoint, run or Hugging Face folder) when given, else
/// from model.hf when it holds safetensors, else drawn from the seed. Moments start at zero.
/// Returns what checkpoints and exports keep about the model. Called by all ranks.
ModelInfo init_weights(Job& job, FileSystem& files, const std::string& source, Communicator& ranks);
/// Same on one rank.
ModelInfo init_weights(Job& job, FileSystem& files, const std::string& source);

/// Configuration of a run folder (its config.toml) or of a file.
Config load_run_config(const std::string& config_or_run, const std::vector<std::string>& overrides);
bool is_run_folder(const std::string& path);

}  // namespace weft
