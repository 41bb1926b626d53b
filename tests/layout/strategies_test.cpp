// Strategies that the user gives: any that is accepted trains the same model, the others are
// refused with a way out.
#include <gtest/gtest.h>

#include "tests/layout/models.h"
#include "weft/backend/backend.h"
#include "weft/base/error.h"
#include "weft/compile/pipeline.h"

namespace weft::test {
namespace {

ShardStrategy weight(const std::string& pattern, const std::string& in, const std::string& out) {
  return {pattern, {{"weight", {in, out}}}, ""};
}

struct Given {
  std::string name;
  std::string model;
  bool tied;
  std::vector<ShardStrategy> shard;
};

const std::vector<Given> kGiven = {
    {"table_by_features", "llama", false, {weight("model.embed_tokens", "", "op")}},
    {"head_by_contraction", "llama", false, {weight("lm_head", "op", "")}},
    {"head_whole", "qwen2", false, {weight("lm_head", "", "")}},
    {"tied_whole", "gpt2", true, {weight("transformer.wte", "", ""), weight("lm_head", "", "")}},
    {"tied_by_features",
     "llama",
     true,
     {weight("model.embed_tokens", "", "op"), weight("lm_head", "op", "")}},
    {"mlp_whole", "qwen3", false, {weight("model.layers.*.mlp.*", "", "")}},
    {"mlp_swapped",
     "llama",
     false,
     {weight("*.gate_proj", "op", ""), weight("*.up_proj", "op", ""),
      weight("*.down_proj", "", "op")}},
    {"one_layer_whole", "gpt2_dropout", true, {weight("transformer.h.1.mlp.*", "", "")}},
    {"attention_swapped", "gpt2", false, {weight("transformer.h.*.attn.c_proj", "", "op")}},
    {"everything_whole",
     "llama",
     true,
     {weight("*proj", "", ""), weight("model.embed_tokens", "", ""), weight("lm_head", "", "")}},
};

class GivenStrategies : public ::testing::TestWithParam<Given> {};

TEST_P(GivenStrategies, TrainTheSameModel) {
  const Given& given = GetParam();
  LayoutJob job = tiny_job(tiny_model(given.model, given.tied, 10), "adamw", "ref", "fp64");
  job.batches.resize(3);
  const LayoutResult one = run_layout(job, {});
  job.shard = given.shard;
  for (const Layout& layout : {Layout{.op = 2}, Layout{.op = 3, .sequence = true},
                               Layout{.data = 2, .op = 2, .sequence = true, .zero = 3}}) {
    SCOPED_TRACE(layout_name(layout));
    expect_one_model(job, run_layout(job, layout), one, kTight);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GivenStrategies, ::testing::ValuesIn(kGiven),
                         [](const auto& tested) { return tested.param.name; });

void expect_refused(const LayoutJob& job, const std::vector<std::string>& parts,
                    const std::string& strategy = "semi") {
  Config config = layout_config(job, {.op = 2});
  config.parallel.strategy = strategy;
  const auto backend = make_backend("cpu", {});
  try {
    compile(config, job.spec, *backend, {});
    FAIL() << "was not refused: " << parts[0];
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }
}

LayoutJob given_job(bool tied, std::vector<ShardStrategy> shard) {
  LayoutJob job;
  job.spec = tiny_model("llama", tied, 10);
  job.batches = uneven_batches(1, 4, 6, 10);
  job.shard = std::move(shard);
  return job;
}

TEST(RefusedStrategies, PatternsThatMatchNothingAreRefused) {
  expect_refused(given_job(false, {weight("model.layers.*.mlp.upproj", "", "op")}),
                 {"[parallel.shard]", "\"model.layers.*.mlp.upproj\"",
                  "matches no module with weights", "model.layers.*.self_attn.q_proj"});
}

TEST(RefusedStrategies, TwoCutsOfOneSharedWeightAreRefused) {
  expect_refused(given_job(true, {weight("lm_head", "op", "")}),
                 {"[parallel.shard]", "model.embed_tokens.weight", "[op, .]", "[., op]",
                  "expected the same cut for both"});
}

TEST(RefusedStrategies, ManualNeedsAnEntryForEveryMatrix) {
  expect_refused(given_job(false, {weight("model.embed_tokens", "op", "")}),
                 {"[parallel.strategy]", "\"manual\"", "model.layers.*.mlp.down_proj", "lm_head",
                  "try strategy = \"semi\""},
                 "manual");
}

TEST(RefusedStrategies, MalformedOnesNameModuleAndOperator) {
  expect_refused(given_job(false, {{"*.up_proj", {}, "((dp,op),(1,op))"}}),
                 {"\"*.up_proj\" at model.layers.0.mlp.up_proj (matmul)"});
  expect_refused(given_job(false, {{"model.norm", {{"input", {"", "", "op"}}}, ""}}),
                 {"\"model.norm\" at model.norm (rmsnorm)", "needs whole"});
  expect_refused(given_job(false, {weight("*.up_proj", "", "rows")}),
                 {"got axis \"rows\"", "data, expert, op"});
}

}  // namespace
}  // namespace weft::test
