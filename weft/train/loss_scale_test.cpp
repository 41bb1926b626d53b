// The rule of the dynamic loss scale against written tables.
#include "weft/train/loss_scale.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

PrecisionConfig half(DynamicScaleConfig dynamic) {
  PrecisionConfig config;
  config.compute = "fp16";
  config.dynamic = dynamic;
  return config;
}

DynamicScaleConfig written() {
  return {.initial = 1024, .growth_interval = 4, .hysteresis = 2, .min_scale = 1};
}

/// Scales of the steps of `steps` ('.' good, 'x' overflow) and the one after the last.
std::vector<double> scales(LossScale& scale, std::string_view steps) {
  std::vector<double> values = {scale.value()};
  for (const char step : steps) {
    scale.update(step == 'x');
    values.push_back(scale.value());
  }
  return values;
}

using Values = std::vector<double>;

TEST(LossScale, B56_FollowsTheWrittenTable) {
  LossScale scale(half(written()));
  // Growth after 4 good steps; the first overflow costs hysteresis, the second halves; growth
  // gives the hysteresis back.
  EXPECT_EQ(scales(scale, "....x..x...x....x.x"),
            (Values{1024, 1024, 1024, 1024, 2048, 2048, 2048, 2048, 1024, 1024,
                    1024, 1024, 512,  512,  512,  512,  1024, 1024, 1024, 512}));
}

TEST(LossScale, AnOverflowRestartsTheWindow) {
  LossScale scale(half(written()));
  EXPECT_EQ(scales(scale, "...x...x...."),
            (Values{1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 512, 512, 512, 512, 1024}));
}

TEST(LossScale, B56_NeverBelowTheFloorAndSaysSo) {
  DynamicScaleConfig config = written();
  config.initial = 4;
  LossScale scale(half(config));
  EXPECT_EQ(scales(scale, "xxx"), (Values{4, 4, 2, 1}));
  EXPECT_FALSE(scale.exhausted());
  scale.update(true);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_TRUE(scale.exhausted());
  scale.update(false);
  EXPECT_FALSE(scale.exhausted());
  EXPECT_EQ(scales(scale, "..."), (Values{1, 1, 1, 2}));
}

TEST(LossScale, AFloorThatIsNoPowerOfTheFactor) {
  DynamicScaleConfig config = written();
  config.initial = 10;
  config.hysteresis = 1;
  config.min_scale = 3;
  LossScale scale(half(config));
  EXPECT_EQ(scales(scale, "xxx"), (Values{10, 5, 3, 3}));
  EXPECT_TRUE(scale.exhausted());
  // A floor above the initial scale does not raise it.
  config.min_scale = 20;
  LossScale low(half(config));
  EXPECT_EQ(scales(low, "x"), (Values{10, 10}));
  EXPECT_TRUE(low.exhausted());
}

TEST(LossScale, FactorsAreThoseOfTheConfiguration) {
  DynamicScaleConfig config = written();
  config.growth_interval = 1;
  config.growth_factor = 1.5;
  config.backoff_factor = 0.25;
  config.hysteresis = 1;
  LossScale scale(half(config));
  EXPECT_EQ(scales(scale, ".x."), (Values{1024, 1536, 384, 576}));
}

TEST(LossScale, GrowthEndsBeforeFloatsDo) {
  DynamicScaleConfig config = written();
  config.growth_interval = 1;
  LossScale scale(half(config));
  for (int i = 0; i < 2000; ++i) scale.update(false);
  EXPECT_EQ(scale.value(), 0x1p64);
}

TEST(LossScale, B57_StateHoldsTheCounters) {
  for (const std::string_view before : {"", "..", "x.", "....x", "...x..x"}) {
    LossScale straight(half(written()));
    scales(straight, before);
    LossScale resumed(half(written()));
    resumed.restore(parse_json(straight.state().dump(), "test"));
    EXPECT_EQ(scales(straight, "..x....xx.x"), scales(resumed, "..x....xx.x")) << before;
  }
}

TEST(LossScale, AStateOfNoScalerIsRefused) {
  LossScale scale(half(written()));
  scale.restore(nullptr);
  EXPECT_EQ(scale.value(), 1024);
  for (const char* text : {"[]", "{}", "{\"scale\":0,\"good_steps\":0,\"hysteresis_left\":1}",
                           "{\"scale\":1e300,\"good_steps\":0,\"hysteresis_left\":1}",
                           "{\"scale\":2,\"good_steps\":-1,\"hysteresis_left\":1}",
                           "{\"scale\":2,\"good_steps\":1}"}) {
    EXPECT_THROW(scale.restore(parse_json(text, "test")), InputError) << text;
  }
}

TEST(LossScale, FixedScalesStayAndHaveNoState) {
  PrecisionConfig config;
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    config.compute = compute;
    config.loss_scale = 65536;
    LossScale scale(config);
    EXPECT_FALSE(scale.dynamic());
    EXPECT_EQ(scales(scale, "xxxx...."), Values(9, 65536)) << compute;
    EXPECT_FALSE(scale.exhausted());
    EXPECT_TRUE(scale.state().is_null());
  }
  config.compute = "bf16";
  config.loss_scale.reset();
  EXPECT_EQ(LossScale(config).value(), 1);
}

}  // namespace
}  // namespace weft
