// The effective configuration of a run as typed structs, one per TOML table. Defaults are those of
// docs/configuration.md, which is generated from the schema (schema.cpp). Plain data, copyable.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/json.h"

namespace weft {

/// [model]: Hugging Face names. Unset optionals take the family's default or the value of `hf`.
struct ModelConfig {
  std::string hf;      // folder with config.json (+ safetensors); empty = the fields below
  std::string family;  // gpt2, llama, moe; with `hf` taken from model_type
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> vocab_size;  // unset: that of the tokenizer
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> rms_norm_eps;  // also the layer norm epsilon of gpt2
  std::optional<double> rope_theta;
  std::optional<Json> rope_parameters;  // {rope_type, factor, …} as in config.json
  std::optional<bool> tie_word_embeddings;
  std::optional<std::string> hidden_act;
  std::optional<bool> attention_bias;  // q, k, v (and o for llama); see docs/models.md
  std::optional<bool> mlp_bias;
  std::optional<bool> gated_mlp;  // false: down(act(up x)), which no Hugging Face type has
  std::optional<bool> qk_norm;    // RMS norm per head before RoPE, as in qwen3
  std::optional<int64_t> sliding_window;
  std::optional<double> initializer_range;
  double dropout = 0.0;  // embeddings and residual branches
  std::optional<int64_t> num_experts;
  std::optional<int64_t> num_experts_per_tok;
  std::optional<int64_t> num_shared_experts;
  std::optional<int64_t> moe_intermediate_size;
  std::optional<bool> norm_topk_prob;
  std::optional<std::string> router_score;  // softmax, sigmoid
  std::optional<double> routed_scaling_factor;
  std::optional<int64_t> n_group;
  std::optional<int64_t> topk_group;
  std::optional<int64_t> first_k_dense_replace;
  // How the experts are trained; also beside `hf`.
  std::optional<double> router_aux_loss_coef;
  std::optional<double> router_z_loss_coef;
  std::optional<double> router_bias_rate;
  std::optional<double> capacity_factor;
};

struct DataConfig {
  std::vector<std::string> train;
  std::vector<double> weights;  // per entry of train; empty = proportional to size (plain join)
  std::vector<std::string> valid;
  double valid_fraction = 0.0;
  std::string tokenizer = "bytes";
  int64_t seq_len = 256;
  bool shuffle = true;
  bool allow_special = false;
  bool reset_positions = false;  // positions restart after an end-of-document id
  bool reset_attention = false;  // tokens see their own document only
  bool mask_boundary = false;    // the label that crosses into the next document is ignored
};

struct TrainConfig {
  int64_t steps = 100;
  int64_t global_batch = 0;  // 0: micro_batch x accumulation x data
  int64_t micro_batch = 0;   // 0: from the others
  int64_t accumulation = 0;  // 0: from the others
  std::string microbatch_order = "auto";
  double grad_clip = 1.0;
  int64_t eval_every = 0;
  int64_t eval_batch = 0;  // sequences per evaluation batch; 0 = micro_batch
  int64_t log_every = 1;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;         // sgd only
  std::string moments = "fp32";  // fp32, bf16
};

struct ScheduleConfig {
  std::string name = "cosine";  // constant, linear, cosine, wsd
  int64_t warmup_steps = 0;
  double min_lr = 0.0;
  int64_t decay_steps = 0;  // wsd: length of the final decay; 0 = a tenth of the run
  std::string lr_scaling = "none";
  int64_t base_batch = 0;
};

struct DynamicScaleConfig {
  double initial = 65536.0;
  int64_t growth_interval = 1000;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t hysteresis = 2;
  double min_scale = 1.0;
  bool reset = false;
};

struct PrecisionConfig {
  std::string compute = "bf16";  // fp32, bf16, fp16 (ref also fp64)
  std::string accumulate = "fp32";
  std::optional<double> loss_scale;  // unset = auto
  DynamicScaleConfig dynamic;
};

struct DeviceConfig {
  std::string backend = "cpu";
  int64_t threads = 0;
};

struct ShardStrategy {
  std::string pattern;
  std::map<std::string, std::vector<std::string>> operands;  // "input" -> axis per dim
  std::string strategy;                                      // tuple form, as written
};

struct ParallelConfig {
  int64_t data = 1;
  int64_t op = 1;
  int64_t pipeline = 1;
  int64_t expert = 1;
  bool sequence = false;
  int64_t zero = 0;
  std::string strategy = "semi";
  std::vector<ShardStrategy> shard;  // in file order
};

struct MemoryConfig {
  std::optional<int64_t> device;  // bytes; unset = auto
  std::optional<int64_t> host;
  std::vector<std::string> nvme;
  std::optional<int64_t> nvme_limit;
};

/// "auto", one tier, or fractions per tier that sum to 1.
struct OffloadPolicy {
  std::string tier = "auto";
  std::map<std::string, double> fractions;
};

struct OffloadConfig {
  OffloadPolicy optimizer, weights, gradients, activations;
  std::string update_on = "auto";
  std::string late_update = "auto";
  std::optional<int64_t> prefetch;
  std::vector<std::pair<std::string, std::string>> groups;
};

struct RecomputeConfig {
  std::string policy = "none";
  int64_t every = 1;
};

struct CheckpointConfig {
  int64_t every_steps = 0;
  double every_minutes = 60;
  int64_t keep = 3;
  bool async = true;
  bool final_save = true;  // key `final`
};

struct MonitorConfig {
  bool tensorboard = true;
  int64_t prometheus_port = 0;
  int64_t dashboard_port = 0;
  std::string bind = "127.0.0.1";
  std::vector<int64_t> trace_steps;
};

struct AlarmConfig {
  std::string nonfinite = "stop";  // stop | skip
  int64_t max_skips = 50;
  double grad_norm = 0.0;
  double stall_seconds = 600;
  std::string command;
};

struct Config {
  uint64_t seed = 1234;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  DeviceConfig device;
  ParallelConfig parallel;
  MemoryConfig memory;
  OffloadConfig offload;
  RecomputeConfig recompute;
  CheckpointConfig checkpoint;
  MonitorConfig monitor;
  AlarmConfig alarm;

  std::string path;  // file it came from; relative paths were resolved against its folder
  /// Keys written in the file or given by an override -> "file:line" or "--set …".
  std::map<std::string, std::string> given;
};

/// Reads `path`, applies `overrides` ("key.path=value", value in TOML syntax; a bare word is taken
/// as a string), checks every key, type and range, then the rules across fields. Throws UsageError
/// with file, line, full key path and the nearest valid name.
Config load_config(const std::string& path, const std::vector<std::string>& overrides);
/// Same from text; `name` stands for the file in messages.
Config parse_config(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides);
/// Rules across fields (batch arithmetic, axes, warm-up, keys that do not apply). Fills
/// global_batch, micro_batch and accumulation. Called by load_config.
void validate_config(Config& config);
/// The effective configuration as TOML (config.toml of a run folder; loads back equal) or JSON.
std::string config_toml(const Config& config);
Json config_json(const Config& config);
/// [{"key","type","default","range","help"}] of every key.
Json config_schema_json();
/// docs/configuration.md, made from the same table.
std::string config_reference();
/// "80GB" -> 80e9, "4GiB" -> 2^32, integers as they are. Throws UsageError naming `where`.
int64_t parse_bytes(std::string_view text, std::string_view where);

}  // namespace weft
