// B70: sizes that nothing divides, pieces that are empty, more ranks than elements.
#include <gtest/gtest.h>

#include "tests/layout/models.h"

namespace weft::test {
namespace {

/// hidden 7, 3 heads of 2, ffn 5, vocabulary 11.
ModelSpec odd_llama(bool qk_norm) {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 7;
  config.intermediate_size = 5;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.num_key_value_heads = 3;
  config.head_dim = 2;
  config.vocab_size = 11;
  config.initializer_range = 0.3;
  config.qk_norm = qk_norm;
  return make_model_spec(config, {});
}

/// hidden 9, 3 heads of 3, ffn 7, vocabulary 11.
ModelSpec odd_gpt2() {
  ModelConfig config;
  config.family = "gpt2";
  config.hidden_size = 9;
  config.intermediate_size = 7;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 3;
  config.vocab_size = 11;
  config.max_position_embeddings = 6;
  config.initializer_range = 0.3;
  config.dropout = 0.1;
  return make_model_spec(config, {});
}

void expect_one_model_everywhere(const LayoutJob& job, const std::vector<Layout>& layouts) {
  const LayoutResult one = run_layout(job, {});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout_name(layout));
    expect_one_model(job, run_layout(job, layout), one, kTight);
  }
}

TEST(Uneven, B70_OddLlamaOverOp) {
  expect_one_model_everywhere(tiny_job(odd_llama(false), "adamw", "ref", "fp64"),
                              {{.op = 2},
                               {.op = 2, .sequence = true},
                               {.op = 3},
                               {.op = 3, .sequence = true},
                               {.data = 2, .op = 3, .sequence = true, .zero = 3}});
}

TEST(Uneven, B70_OddGpt2OverOp) {
  expect_one_model_everywhere(tiny_job(odd_gpt2(), "sgd", "ref", "fp64"),
                              {{.op = 2},
                               {.op = 3, .sequence = true},
                               {.data = 2, .op = 2, .zero = 2},
                               {.data = 3, .op = 3, .sequence = true, .zero = 3}});
}

TEST(Uneven, B70_MoreRanksThanElements) {
  // Gains of the head norms have 2 elements, of the other norms 7; there are up to 12 ranks.
  std::vector<Layout> layouts;
  for (int64_t zero = 1; zero <= 3; ++zero) {
    for (const int64_t data : {2, 3, 4, 12}) layouts.push_back({.data = data, .zero = zero});
  }
  expect_one_model_everywhere(tiny_job(odd_llama(true), "adamw", "ref", "fp64"), layouts);
}

TEST(Uneven, B70_RanksWithoutASequencePosition) {
  // Two positions over four ranks, vocabulary 11 over four: some ranks have nothing to do.
  LayoutJob job = tiny_job(tiny_model("qwen3", false, 11), "sgd", "ref", "fp64");
  job.batches = uneven_batches(3, 4, 2, 11);
  clip_at_half(job);
  expect_one_model_everywhere(job, {{.op = 3, .sequence = true},
                                    {.op = 4, .sequence = true},
                                    {.data = 2, .op = 4, .sequence = true, .zero = 3}});
}

TEST(Uneven, B70_OneBlockForAllRanks) {
  // ffn 1 over four ranks: three hold nothing of the mlp.
  ModelSpec spec = tiny_model("llama", true, 3);
  spec.intermediate_size = 1;
  expect_one_model_everywhere(
      tiny_job(spec, "adamw", "ref", "fp64"),
      {{.op = 4}, {.op = 4, .sequence = true}, {.data = 2, .op = 4, .zero = 3}});
}

TEST(Uneven, ThreeKeyValueHeadsOnTwoRanks) {
  ModelSpec spec = tiny_model("qwen2", true, 10);
  spec.num_heads = 6;
  spec.num_kv_heads = 3;
  expect_one_model_everywhere(
      tiny_job(spec, "adamw", "ref", "fp64"),
      {{.op = 2}, {.op = 2, .sequence = true}, {.data = 2, .op = 2, .zero = 3}});
}

}  // namespace
}  // namespace weft::test
