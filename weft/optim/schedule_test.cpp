#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "weft/optim/optimizer.h"

namespace weft {
namespace {

Config schedule_config(const std::string& name, int64_t warmup, int64_t steps) {
  Config config;
  config.optimizer.lr = 1.0;
  config.schedule.name = name;
  config.schedule.warmup_steps = warmup;
  config.schedule.min_lr = 0.1;
  config.train.steps = steps;
  return config;
}

void expect_table(const Config& config, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(learning_rate(config, static_cast<int64_t>(i) + 1), expected[i], 5e-7)
        << config.schedule.name << " step " << i + 1;
  }
}

TEST(Schedule, B61_CosineTableWithWarmup) {
  Config config = schedule_config("cosine", 4, 10);
  const std::vector<double> table = {0.25, 0.5,   0.75,     1.0, 0.939711, 0.775,
                                     0.55, 0.325, 0.160289, 0.1, 0.1,      0.1};
  expect_table(config, table);
  config.train.accumulation = 4;  // steps are optimizer steps, whatever the micro-batches
  expect_table(config, table);
}

TEST(Schedule, B61_EdgesOfWarmup) {
  expect_table(schedule_config("cosine", 0, 1), {0.1, 0.1});
  expect_table(schedule_config("cosine", 0, 2), {0.55, 0.1});
  expect_table(schedule_config("linear", 4, 4), {0.25, 0.5, 0.75, 1.0, 0.1});
  expect_table(schedule_config("linear", 1, 4), {1.0, 0.7, 0.4, 0.1, 0.1});
}

TEST(Schedule, ConstantAndWarmupStableDecay) {
  expect_table(schedule_config("constant", 2, 4), {0.5, 1.0, 1.0, 1.0, 1.0});
  Config config = schedule_config("wsd", 1, 6);
  config.schedule.decay_steps = 3;
  expect_table(config, {1.0, 1.0, 1.0, 0.7, 0.4, 0.1, 0.1});
}

TEST(Schedule, S7_BatchScalingIsAnOption) {
  Config config = schedule_config("constant", 0, 4);
  config.train.global_batch = 64;
  EXPECT_EQ(scaled_peak_lr(config), 1.0);
  config.schedule.base_batch = 16;
  config.schedule.lr_scaling = "linear";
  EXPECT_EQ(scaled_peak_lr(config), 4.0);
  config.schedule.lr_scaling = "sqrt";
  EXPECT_EQ(scaled_peak_lr(config), 2.0);
}

TEST(Schedule, SkippedStepsDoNotMoveTheSchedule) {
  const Config config = schedule_config("constant", 4, 8);
  // Step 3 after one skipped step is update number 2.
  EXPECT_DOUBLE_EQ(update_hyper(config, 1)[0], learning_rate(config, 2));
  EXPECT_LT(learning_rate(config, 2), learning_rate(config, 3));
}

TEST(Schedule, B59_BiasCorrectionCountsAppliedUpdates) {
  Config config = schedule_config("constant", 0, 4);
  config.optimizer.beta1 = 0.9;
  config.optimizer.beta2 = 0.95;
  const std::vector<double> first = update_hyper(config, 0);
  EXPECT_DOUBLE_EQ(first[1], 1.0 - 0.9);
  EXPECT_DOUBLE_EQ(first[2], 1.0 - 0.95);
  // Step 5 after one skipped step is update number 4.
  EXPECT_DOUBLE_EQ(update_hyper(config, 3)[1], 1.0 - std::pow(0.9, 4));
}

}  // namespace
}  // namespace weft
