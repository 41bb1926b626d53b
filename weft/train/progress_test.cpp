#include "weft/train/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace weft {
namespace {

StepRecord example() {
  StepRecord record;
  record.step = 20;
  record.loss = 3.14159;
  record.grad_norm = 0.5124;
  record.lr = 3e-4;
  record.tokens_per_s = 12345;
  record.step_ms = 41.24;
  return record;
}

TEST(Progress, StepLine) {
  EXPECT_EQ(step_line(example(), 200),
            "step  20/200  loss 3.1416  norm 0.5124  lr 3.00e-04  12.3k tok/s  41.2 ms");
}

TEST(Progress, SkippedStepNamesTheScale) {
  StepRecord record = example();
  record.skipped = true;
  record.loss_scale = 32768;
  record.grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(step_line(record, 20),
            "step 20/20  loss 3.1416  norm inf  lr 3.00e-04  12.3k tok/s  41.2 ms  skipped (loss "
            "scale 32768)");
}

TEST(Progress, EvalLine) {
  EXPECT_EQ(eval_line({20, 1.88014, 6.55442, 111540}),
            "eval at step 20  loss 1.8801  perplexity 6.554  111540 tokens");
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(185), "3m05s");
  EXPECT_EQ(duration_text(7620), "2h07m");
  EXPECT_EQ(duration_text(86400 * 3 + 4 * 3600), "3d04h");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
}

class BarLine : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LC_ALL", "C", 1); }
  void TearDown() override { ::unsetenv("LC_ALL"); }
};

TEST_F(BarLine, FullWidth) {
  EXPECT_EQ(bar_line(example(), 200, 185, "", 120, false),
            " 20/200 ==----------------------  loss 3.1416  norm 0.512  lr 3.00e-04  12.3k tok/s  "
            "3m05s left");
}

TEST_F(BarLine, NeverWiderThanTheTerminal) {
  for (int width = 8; width < 130; ++width) {
    EXPECT_LE(bar_line(example(), 200, 185, "", width, false).size(), static_cast<size_t>(width));
  }
}

TEST_F(BarLine, NarrowKeepsLossAndTimeLeft) {
  EXPECT_EQ(bar_line(example(), 200, 185, "", 34, false), " 20/200  loss 3.1416  3m05s left");
}

TEST_F(BarLine, PhaseTakesThePlaceOfTheTimeLeft) {
  const std::string line = bar_line(example(), 200, 185, "evaluating", 120, false);
  EXPECT_NE(line.find("evaluating"), std::string::npos);
  EXPECT_EQ(line.find("left"), std::string::npos);
}

TEST_F(BarLine, ColorOnlyWhenAsked) {
  EXPECT_EQ(bar_line(example(), 200, 1, "", 120, false).find('\x1b'), std::string::npos);
  EXPECT_NE(bar_line(example(), 200, 1, "", 120, true).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace weft
