// Every recipe in configs/ is valid and compiles for the null backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/backend/backend.h"
#include "weft/compile/pipeline.h"
#include "weft/config/config.h"
#include "weft/model/model_spec.h"

namespace weft {
namespace {

std::vector<std::string> recipes() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(WEFT_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Config load(const std::string& name) {
  return load_config(std::string(WEFT_SOURCE_DIR) + "/configs/" + name + ".toml", {});
}

Plan plan_of(const Config& config) {
  const ModelSpec spec = make_model_spec(config.model, 1024);
  CompileOptions options;
  options.eval = true;
  return compile(config, spec, *make_backend("null", {}), options);
}

class Recipe : public ::testing::TestWithParam<std::string> {};

TEST_P(Recipe, IsValidAndCompiles) {
  Config config = load(GetParam());
  if (!config.model.hf.empty()) return;  // needs the user's folder
  config.train.accumulation = std::min<int64_t>(config.train.accumulation, 2);  // all are alike
  config.train.global_batch =
      config.train.micro_batch * config.train.accumulation * config.parallel.data;
  const Plan plan = plan_of(config);
  EXPECT_GT(plan.model.parameters, 0);
  EXPECT_GT(plan.program("train").steps.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, Recipe, ::testing::ValuesIn(recipes()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(Recipes, Gpt2SmallHasItsPublishedSize) {
  for (const char* name : {"gpt2-124m", "bench-gpt2-124m"}) {
    const ModelSpec spec = make_model_spec(load(name).model, std::nullopt);
    EXPECT_EQ(count_parameters(spec), 124439808) << name;
  }
}

// 1.5 GB of device and 6 GB of host memory hold what 23 GB of state and a step need of them.
TEST(Recipes, DenseModelFitsItsSmallMachine) {
  const Config config = load("dense-1.3b-24gb");
  const ModelSpec spec = make_model_spec(config.model, 257);
  EXPECT_EQ(count_parameters(spec), 1309775872);
  const Plan plan = compile(config, spec, *make_backend("null", {}), {});
  EXPECT_TRUE(plan.fits);
  EXPECT_GT(plan.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes, int64_t{10} << 30);
}

TEST(Recipes, ShakespeareHasTheShapeOfNanoGpt) {
  const Config config = load("shakespeare-nanogpt");
  EXPECT_EQ(config.train.global_batch, 12);
  EXPECT_EQ(config.data.seq_len, 64);
  // 4 layers of 12 x 128^2 + 13 x 128, embeddings of 257 and 64 positions, the last norm.
  EXPECT_EQ(count_parameters(make_model_spec(config.model, 257)),
            4 * (12 * 128 * 128 + 13 * 128) + (257 + 64) * 128 + 2 * 128);
}

}  // namespace
}  // namespace weft
