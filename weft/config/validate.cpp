// Rules across keys. Every refusal names all the factors with their values.
#include <fmt/core.h>

#include <cmath>
#include <numeric>

#include "weft/base/error.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

std::string origin(const Config& config) { return config.path.empty() ? "config" : config.path; }

void check_model(const Config& c) {
  const ModelConfig& m = c.model;
  if (m.hf.empty() && m.family.empty()) {
    throw UsageError(origin(c),
                     "got no model, expected model.hf or model.family; try [model] with "
                     "family = \"llama\" and its sizes");
  }
  if (!m.hf.empty() && !m.family.empty()) {
    refuse_key(c, "model.family",
               fmt::format("got model.hf = \"{}\" and model.family = \"{}\", expected one of them; "
                           "try removing model.family (config.json names it)",
                           m.hf, m.family));
  }
  if (m.num_attention_heads && m.num_key_value_heads &&
      *m.num_attention_heads % *m.num_key_value_heads != 0) {
    refuse_key(c, "model.num_key_value_heads",
               fmt::format("got model.num_key_value_heads = {}, expected a divisor of "
                           "model.num_attention_heads = {}",
                           *m.num_key_value_heads, *m.num_attention_heads));
  }
  if (m.num_experts && m.num_experts_per_tok && *m.num_experts_per_tok > *m.num_experts) {
    refuse_key(c, "model.num_experts_per_tok",
               fmt::format("got model.num_experts_per_tok = {}, expected at most "
                           "model.num_experts = {}",
                           *m.num_experts_per_tok, *m.num_experts));
  }
}

void check_data(const Config& c) {
  const DataConfig& d = c.data;
  if (!d.valid.empty() && d.valid_fraction > 0) {
    refuse_key(c, "data.valid_fraction",
               fmt::format("got data.valid_fraction = {} and {} data.valid files, expected one of "
                           "the two",
                           d.valid_fraction, d.valid.size()));
  }
  if (c.train.eval_every > 0 && d.valid.empty() && d.valid_fraction == 0) {
    refuse_key(c, "train.eval_every",
               fmt::format("got train.eval_every = {} without validation data, expected data.valid "
                           "or data.valid_fraction; try data.valid_fraction = 0.1",
                           c.train.eval_every));
  }
  if (d.weights.empty()) return;
  if (d.weights.size() != d.train.size()) {
    refuse_key(c, "data.weights",
               fmt::format("got {} data.weights for {} data.train files, expected one per file",
                           d.weights.size(), d.train.size()));
  }
  double sum = 0;
  for (const double weight : d.weights) {
    if (!std::isfinite(weight) || weight < 0) {
      refuse_key(
          c, "data.weights",
          fmt::format("got weight {} in data.weights, expected finite numbers >= 0", weight));
    }
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    refuse_key(c, "data.weights",
               fmt::format("got data.weights with sum {}, expected a finite sum above 0", sum));
  }
}

void check_axes(const Config& c) {
  const ParallelConfig& p = c.parallel;
  int64_t world = 0;
  if (__builtin_mul_overflow(p.data, p.op, &world) ||
      __builtin_mul_overflow(world, p.pipeline, &world)) {
    refuse_key(c, "parallel.data",
               fmt::format("got world = parallel.data {} x parallel.op {} x parallel.pipeline {}, "
                           "expected a product below 2^63",
                           p.data, p.op, p.pipeline));
  }
  if (p.data % p.expert != 0) {
    refuse_key(c, "parallel.expert",
               fmt::format("got parallel.expert = {}, expected a divisor of parallel.data = {}",
                           p.expert, p.data));
  }
  if (c.model.num_experts && *c.model.num_experts % p.expert != 0) {
    refuse_key(c, "parallel.expert",
               fmt::format("got parallel.expert = {}, expected a divisor of model.num_experts = {}",
                           p.expert, *c.model.num_experts));
  }
}

/// "global_batch 10 = micro_batch 2 x accumulation ? x parallel.data 2".
std::string batch_text(const Config& c) {
  const auto number = [](int64_t value) { return value == 0 ? "?" : std::to_string(value); };
  return fmt::format(
      "train.global_batch {} = train.micro_batch {} x train.accumulation {} x parallel.data {}",
      number(c.train.global_batch), number(c.train.micro_batch), number(c.train.accumulation),
      c.parallel.data);
}

[[noreturn]] void refuse_batch(const Config& c, const std::string& why) {
  for (const char* key : {"train.global_batch", "train.micro_batch", "train.accumulation"}) {
    if (c.given.contains(key)) refuse_key(c, key, why);
  }
  throw UsageError(origin(c), why);
}

int64_t product(const Config& c, int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    refuse_batch(c, fmt::format("got {}, expected a product below 2^63", batch_text(c)));
  }
  return result;
}

/// The factor that makes the equation hold, or a refusal that names every factor.
int64_t missing_factor(const Config& c, int64_t known, std::string_view name) {
  if (c.train.global_batch % known != 0) {
    const int64_t below = c.train.global_batch / known * known;
    refuse_batch(c, fmt::format("got {}, expected a global batch that is a multiple of {} so that "
                                "{} is a whole number; try train.global_batch = {}",
                                batch_text(c), known, name, below > 0 ? below : known));
  }
  return c.train.global_batch / known;
}

void fill_batch(Config& c) {
  TrainConfig& t = c.train;
  const auto positive_or_unset = [&](int64_t value) {
    if (value < 0) {
      refuse_batch(c, fmt::format("got {}, expected positive factors", batch_text(c)));
    }
  };
  positive_or_unset(t.global_batch);
  positive_or_unset(t.micro_batch);
  positive_or_unset(t.accumulation);
  if (t.global_batch == 0) {
    if (t.micro_batch == 0) t.micro_batch = 1;
    if (t.accumulation == 0) t.accumulation = 1;
    t.global_batch = product(c, product(c, t.micro_batch, t.accumulation), c.parallel.data);
  } else if (t.micro_batch == 0) {
    const int64_t accumulation = t.accumulation == 0 ? 1 : t.accumulation;
    t.micro_batch =
        missing_factor(c, product(c, accumulation, c.parallel.data), "train.micro_batch");
    t.accumulation = accumulation;
  } else if (t.accumulation == 0) {
    t.accumulation =
        missing_factor(c, product(c, t.micro_batch, c.parallel.data), "train.accumulation");
  } else if (product(c, product(c, t.micro_batch, t.accumulation), c.parallel.data) !=
             t.global_batch) {
    const int64_t right = product(c, product(c, t.micro_batch, t.accumulation), c.parallel.data);
    refuse_batch(c, fmt::format("got {}, but the product is {}, expected them equal; try removing "
                                "one of the keys",
                                batch_text(c), right));
  }
}

void check_memory(const Config& c) {
  if (c.memory.nvme_limit.has_value() && c.memory.nvme.empty()) {
    refuse_key(
        c, "memory.nvme_limit",
        fmt::format("got memory.nvme_limit = {} without memory.nvme, expected folders for the "
                    "cold tier; try memory.nvme = [\"/folder\"]",
                    *c.memory.nvme_limit));
  }
}

double lr_factor(const Config& c) {
  if (c.schedule.lr_scaling == "none") return 1.0;
  const double ratio =
      static_cast<double>(c.train.global_batch) / static_cast<double>(c.schedule.base_batch);
  return c.schedule.lr_scaling == "sqrt" ? std::sqrt(ratio) : ratio;
}

void check_schedule(const Config& c) {
  const ScheduleConfig& s = c.schedule;
  if (s.lr_scaling != "none" && s.base_batch == 0) {
    refuse_key(c, "schedule.lr_scaling",
               fmt::format("got schedule.lr_scaling = \"{}\" without schedule.base_batch, expected "
                           "the global batch for which lr was chosen; try schedule.base_batch = {}",
                           s.lr_scaling, c.train.global_batch));
  }
  const double peak = c.optimizer.lr * lr_factor(c);
  if (s.name != "constant" && s.min_lr > peak) {
    refuse_key(c, "schedule.min_lr",
               fmt::format("got schedule.min_lr = {}, expected at most the peak {} (optimizer.lr = "
                           "{}, schedule.lr_scaling = \"{}\")",
                           s.min_lr, peak, c.optimizer.lr, s.lr_scaling));
  }
  if (c.train.steps == 0) return;  // no step, no schedule
  if (s.warmup_steps > c.train.steps) {
    refuse_key(c, "schedule.warmup_steps",
               fmt::format("got schedule.warmup_steps = {}, expected at most train.steps = {}",
                           s.warmup_steps, c.train.steps));
  }
  if (s.name == "wsd" && s.decay_steps > c.train.steps - s.warmup_steps) {
    refuse_key(
        c, "schedule.decay_steps",
        fmt::format("got schedule.decay_steps = {}, expected at most train.steps {} - "
                    "schedule.warmup_steps {} = {}",
                    s.decay_steps, c.train.steps, s.warmup_steps, c.train.steps - s.warmup_steps));
  }
}

/// A fixed loss scale has no use for the keys of the dynamic one, nor a floor above its start.
void check_loss_scale(const Config& c) {
  const PrecisionConfig& p = c.precision;
  if (p.loss_scale.has_value()) {
    for (const auto& [key, place] : c.given) {
      if (!key.starts_with("precision.dynamic.")) continue;
      refuse_key(c, key,
                 fmt::format("got {} with the fixed precision.loss_scale = {}, expected it only "
                             "with precision.loss_scale = \"auto\"; try removing one of them",
                             key, *p.loss_scale));
    }
  }
  if (p.dynamic.min_scale > p.dynamic.initial) {
    refuse_key(c, "precision.dynamic.min_scale",
               fmt::format("got precision.dynamic.min_scale = {}, expected at most "
                           "precision.dynamic.initial = {}",
                           p.dynamic.min_scale, p.dynamic.initial));
  }
}

void check_moments(const Config& c) {
  if (c.optimizer.moments != "bf16") return;
  if (c.optimizer.name == "sgd" && c.optimizer.momentum == 0) {
    refuse_key(c, "optimizer.moments",
               "got optimizer.moments = \"bf16\" with optimizer.name = \"sgd\" and "
               "optimizer.momentum = 0, which has no moments; try removing it");
  }
  if (c.precision.compute == "fp64") {
    refuse_key(c, "optimizer.moments",
               "got optimizer.moments = \"bf16\" with precision.compute = \"fp64\", expected fp32 "
               "masters; try removing it");
  }
}

void check_applicable(const Config& c) {
  for (const auto& [key, place] : c.given) {
    const KeySpec* spec = find_key(key);
    if (spec == nullptr || key_applies(*spec, c)) continue;
    const Json value = key_value(*find_key(spec->only.key), c);
    std::string expected;
    for (const std::string_view word : spec->only.values) {
      if (word.empty()) continue;
      if (!expected.empty()) expected += " or ";
      expected += fmt::format("\"{}\"", word);
    }
    refuse_key(c, key,
               fmt::format("got {}, which does not apply to {} = {}, expected it only with {}; try "
                           "removing it",
                           key, spec->only.key, value.dump(), expected));
  }
}

}  // namespace

void refuse_key(const Config& config, std::string_view key, const std::string& text) {
  const auto found = config.given.find(std::string(key));
  throw UsageError(found == config.given.end() ? origin(config) : found->second, text);
}

void validate_config(Config& config) {
  check_model(config);
  check_data(config);
  check_axes(config);
  fill_batch(config);
  check_memory(config);
  check_schedule(config);
  if (config.precision.compute == "fp64" && config.device.backend != "ref") {
    refuse_key(
        config, "precision.compute",
        fmt::format("got precision.compute = \"fp64\" with device.backend = \"{}\", expected "
                    "fp32, bf16 or fp16; try device.backend = \"ref\"",
                    config.device.backend));
  }
  check_loss_scale(config);
  check_moments(config);
  check_applicable(config);
  refuse_unsupported(config);
}

}  // namespace weft
