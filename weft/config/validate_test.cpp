#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/config/config.h"

namespace weft {
namespace {

Config parse(const std::string& text) {
  return parse_config("[model]\nfamily = \"llama\"\n" + text, "run.toml", {});
}

std::string refused(const std::string& text) {
  try {
    parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

struct Batch {
  int64_t global, micro, accumulation;
  bool operator==(const Batch&) const = default;
};

Batch batch(const std::string& text) {
  const Config c = parse("[train]\n" + text);
  return {c.train.global_batch, c.train.micro_batch, c.train.accumulation};
}

TEST(Validate, B29_AnyTwoFactorsGiveTheThird) {
  EXPECT_EQ(batch("global_batch = 12\nmicro_batch = 3\n"), (Batch{12, 3, 4}));
  EXPECT_EQ(batch("global_batch = 12\naccumulation = 3\n"), (Batch{12, 4, 3}));
  EXPECT_EQ(batch("micro_batch = 2\naccumulation = 5\n"), (Batch{10, 2, 5}));
  EXPECT_EQ(batch("micro_batch = 2\n"), (Batch{2, 2, 1}));
  EXPECT_EQ(batch("global_batch = 8\n"), (Batch{8, 8, 1}));
  EXPECT_EQ(batch("accumulation = 3\n"), (Batch{3, 1, 3}));
  EXPECT_EQ(batch("global_batch = 12\nmicro_batch = 3\naccumulation = 4\n"), (Batch{12, 3, 4}));
}

TEST(Validate, B29_DataAxisIsAFactor) {
  Config c;
  c.model.family = "llama";
  c.parallel.data = 2;
  c.train.global_batch = 12;
  c.train.micro_batch = 3;
  validate_config(c);
  EXPECT_EQ(c.train.accumulation, 2);
}

TEST(Validate, B29_ContradictionsNameAllFactors) {
  const std::string message =
      refused("[train]\nglobal_batch = 10\nmicro_batch = 2\n[parallel]\ndata = 2\n");
  EXPECT_SAYS(message, "[run.toml:4]");
  EXPECT_SAYS(message, "train.global_batch 10");
  EXPECT_SAYS(message, "train.micro_batch 2");
  EXPECT_SAYS(message, "train.accumulation ?");
  EXPECT_SAYS(message, "parallel.data 2");
  EXPECT_SAYS(message, "try train.global_batch = 8");
  const std::string product =
      refused("[train]\nglobal_batch = 10\nmicro_batch = 2\naccumulation = 4\n");
  EXPECT_SAYS(product, "train.accumulation 4");
  EXPECT_SAYS(product, "the product is 8");
  EXPECT_SAYS(refused("[train]\nglobal_batch = 2\naccumulation = 4\n"),
              "try train.global_batch = 4");
  EXPECT_SAYS(refused("[train]\nmicro_batch = 9223372036854775807\naccumulation = 2\n"), "2^63");
}

TEST(Validate, B29_ExpertAxisDividesDataAndExperts) {
  EXPECT_SAYS(refused("[parallel]\ndata = 2\nexpert = 4\n"), "a divisor of parallel.data = 2");
  Config c;
  c.model.family = "moe";
  c.model.num_experts = 6;
  c.parallel.data = 4;
  c.parallel.expert = 4;
  try {
    validate_config(c);
    FAIL() << "4 ranks for 6 experts were accepted";
  } catch (const UsageError& error) {
    EXPECT_SAYS(error.what(), "a divisor of model.num_experts = 6");
  }
}

TEST(Validate, B29_AxesOfSizeOneBehaveAsIfAbsent) {
  const Config absent = parse("[train]\nglobal_batch = 8\nmicro_batch = 2\n");
  const Config ones = parse(
      "[train]\nglobal_batch = 8\nmicro_batch = 2\n[parallel]\ndata = 1\nop = 1\npipeline = 1\n"
      "expert = 1\nzero = 0\n");
  EXPECT_EQ(config_toml(absent), config_toml(ones));
}

TEST(Validate, B61_WarmupWithinTheRun) {
  EXPECT_SAYS(refused("[train]\nsteps = 10\n[schedule]\nwarmup_steps = 11\n"),
              "schedule.warmup_steps = 11, expected at most train.steps = 10");
  EXPECT_EQ(parse("[train]\nsteps = 10\n[schedule]\nwarmup_steps = 10\n").schedule.warmup_steps,
            10);
  EXPECT_EQ(parse("[train]\nsteps = 1\n[schedule]\nwarmup_steps = 0\n").train.steps, 1);
  EXPECT_SAYS(refused("[train]\nsteps = 10\n[schedule]\nname = \"wsd\"\nwarmup_steps = 4\n"
                      "decay_steps = 7\n"),
              "expected at most train.steps 10 - schedule.warmup_steps 4 = 6");
  EXPECT_SAYS(refused("[optimizer]\nlr = 1e-4\n[schedule]\nmin_lr = 1e-3\n"),
              "schedule.min_lr = 0.001, expected at most the peak 0.0001");
}

TEST(Validate, ScalingNeedsItsBase) {
  EXPECT_SAYS(refused("[schedule]\nlr_scaling = \"linear\"\n"), "schedule.base_batch");
  EXPECT_SAYS(refused("[schedule]\nbase_batch = 8\n"), "does not apply");
  // The floor is compared with the scaled peak.
  const std::string quarter =
      "[train]\nglobal_batch = 2\n[optimizer]\nlr = 1e-3\n[schedule]\nlr_scaling = \"linear\"\n"
      "base_batch = 8\n";
  EXPECT_EQ(parse(quarter + "min_lr = 2e-4\n").schedule.min_lr, 2e-4);
  EXPECT_SAYS(refused(quarter + "min_lr = 3e-4\n"), "at most the peak 0.00025");
}

TEST(Validate, B49_WeightsAreStrict) {
  const std::string two = "[data]\ntrain = [\"a.txt\", \"b.txt\"]\n";
  EXPECT_EQ(parse(two + "weights = [0, 1]\n").data.weights, (std::vector<double>{0, 1}));
  EXPECT_EQ(parse(two + "weights = [0.001, 0.999]\n").data.weights[1], 0.999);
  EXPECT_SAYS(refused(two + "weights = [1]\n"), "1 data.weights for 2 data.train files");
  EXPECT_SAYS(refused(two + "weights = [-1, 1]\n"), "data.weights = -1");
  EXPECT_SAYS(refused(two + "weights = [0, 0]\n"), "sum 0");
  EXPECT_SAYS(refused(two + "weights = [nan, 1]\n"), "finite");
  EXPECT_SAYS(refused(two + "weights = [inf, 1]\n"), "finite");
  EXPECT_SAYS(refused(two + "weights = \"-1,1\"\n"), "expected a list of numbers");
  EXPECT_SAYS(refused(two + "weights = [\"90\", \"abc5\"]\n"), "expected a list of numbers");
  EXPECT_SAYS(refused(two + "weights = [1e308, 1e308]\n"), "finite sum");
}

TEST(Validate, B49_EvaluationNeedsData) {
  EXPECT_SAYS(refused("[train]\neval_every = 5\n"), "without validation data");
  EXPECT_SAYS(refused("[data]\nvalid = [\"v.txt\"]\nvalid_fraction = 0.1\n"), "one of the two");
}

TEST(Validate, KeysThatDoNotApplyAreRefused) {
  EXPECT_SAYS(refused("[optimizer]\nname = \"sgd\"\nbetas = [0.9, 0.9]\n"),
              "[run.toml:5] got optimizer.betas, which does not apply to optimizer.name = \"sgd\"");
  EXPECT_SAYS(refused("[optimizer]\nmomentum = 0.9\n"), "only with \"sgd\"");
  EXPECT_SAYS(refused("[schedule]\ndecay_steps = 3\n"), "only with \"wsd\"");
  EXPECT_SAYS(refused("[schedule]\nname = \"constant\"\nmin_lr = 0.0\n"), "schedule.min_lr");
  EXPECT_SAYS(refused("[device]\nbackend = \"null\"\nthreads = 2\n"), "device.threads");
  EXPECT_SAYS(refused("[recompute]\nevery = 2\n"), "recompute.every");
  EXPECT_SAYS(refused("num_experts = 4\n"), "model.num_experts");
  EXPECT_SAYS(refused("[precision.dynamic]\ninitial = 4\n"), "only with \"fp16\"");
  EXPECT_EQ(parse("[optimizer]\nname = \"sgd\"\nmomentum = 0.9\n").optimizer.momentum, 0.9);
}

TEST(Validate, ModelIsOneOfFolderAndFields) {
  EXPECT_SAYS(refused("hf = \"m\"\n"), "expected one of them");
  EXPECT_SAYS(refused("num_attention_heads = 6\nnum_key_value_heads = 4\n"), "a divisor of");
  EXPECT_SAYS(refused("[precision]\ncompute = \"fp64\"\n"), "try device.backend = \"ref\"");
  EXPECT_EQ(parse("[precision]\ncompute = \"fp64\"\n[device]\nbackend = \"ref\"\n").device.backend,
            "ref");
}

TEST(Validate, LossScaleIsFixedOrDynamic) {
  const std::string half = "[precision]\ncompute = \"fp16\"\n";
  EXPECT_FALSE(parse(half).precision.loss_scale.has_value());
  EXPECT_EQ(parse(half + "[precision.dynamic]\ninitial = 1024\n").precision.dynamic.initial, 1024);
  EXPECT_EQ(parse(half + "loss_scale = 65536\n").precision.loss_scale, 65536);
  EXPECT_SAYS(refused(half + "loss_scale = 4\n[precision.dynamic]\ninitial = 4\n"),
              "precision.dynamic.initial with the fixed precision.loss_scale = 4");
  EXPECT_SAYS(refused(half + "[precision.dynamic]\ninitial = 4\nmin_scale = 8\n"),
              "precision.dynamic.min_scale = 8, expected at most precision.dynamic.initial = 4");
  EXPECT_SAYS(refused(half + "loss_scale = 0\n"), "precision.loss_scale");
  // What is shown loads back.
  const Config fixed = parse(half + "loss_scale = 65536\n");
  EXPECT_EQ(config_toml(parse_config(config_toml(fixed), "again.toml", {})), config_toml(fixed));
}

TEST(Validate, OffloadFractionsSumToOne) {
  EXPECT_SAYS(refused("[offload]\noptimizer = { device = 0.1, host = 0.6 }\n"), "sum to 0.7");
  EXPECT_SAYS(refused("[offload]\noptimizer = { device = 1.5 }\n"), "a fraction from 0 to 1");
  const Config shares = parse(
      "[memory]\nnvme = [\"/n\"]\n[offload]\noptimizer = { device = 0.1, host = 0.6, nvme = 0.3 "
      "}\n");
  EXPECT_EQ(shares.offload.optimizer.fractions.at("host"), 0.6);
}

// What parses but cannot be honoured yet is refused by name, never ignored.
TEST(Validate, UnsupportedValuesNameTheirKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[parallel]\npipeline = 2\n", "parallel.pipeline = 2"},
      {"[parallel]\nstrategy = \"auto\"\n", "parallel.strategy"},
      {"[monitor]\nprometheus_port = 9000\n", "monitor.prometheus_port"},
      {"[monitor]\ndashboard_port = 9000\n", "monitor.dashboard_port"},
  };
  for (const auto& [text, key] : cases) {
    const std::string message = refused(text);
    EXPECT_SAYS(message, key);
    EXPECT_SAYS(message, "does not support");
  }
}

TEST(Validate, LimitOfATierThatIsOff) {
  EXPECT_SAYS(refused("[memory]\nnvme_limit = \"1TB\"\n"), "memory.nvme");
}

}  // namespace
}  // namespace weft
