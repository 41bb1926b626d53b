// B29 and B31: axes that divide nothing are refused with their numbers, axes of size 1 are nothing.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/layout/models.h"
#include "weft/base/error.h"

namespace weft::test {
namespace {

ModelSpec llama_heads(int64_t heads, int64_t kv_heads) {
  ModelSpec spec = tiny_model("llama", false, 10);
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = 4;
  return spec;
}

TEST(Layouts, B31_MoreRanksThanKeyValueHeadsAreRefusedWithTheNumbers) {
  const auto refusal = [](int64_t heads, int64_t kv_heads, int64_t op) -> std::string {
    LayoutJob job;
    job.spec = llama_heads(heads, kv_heads);
    job.batches = uneven_batches(1, 4, 6, 10);
    try {
      plan_layout(job, {.op = op});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [heads, kv_heads, op] :
       {std::array<int64_t, 3>{4, 2, 4}, {4, 2, 3}, {4, 1, 2}}) {
    const std::string text = refusal(heads, kv_heads, op);
    for (const std::string& part :
         {fmt::format("[parallel.op] got parallel.op = {}", op),
          fmt::format("{} key/value heads", kv_heads), fmt::format("{} query heads", heads),
          fmt::format("try parallel.op = {}", kv_heads)}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }
  EXPECT_EQ(refusal(4, 2, 2), "");
  EXPECT_EQ(refusal(6, 3, 2), "") << "three heads on two ranks are uneven, not wrong";
}

TEST(Layouts, B31_AttentionKeptWholeTrainsOnAnyNumberOfRanks) {
  LayoutJob job = tiny_job(llama_heads(4, 2), "adamw", "ref", "fp64");
  const LayoutResult one = run_layout(job, {});
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    job.shard.push_back(
        {std::string("model.layers.*.self_attn.") + name, {{"weight", {"", ""}}}, ""});
  }
  for (const Layout& layout : {Layout{.op = 4}, Layout{.op = 3, .sequence = true},
                               Layout{.data = 2, .op = 4, .sequence = true, .zero = 2}}) {
    SCOPED_TRACE(layout_name(layout));
    expect_one_model(job, run_layout(job, layout), one, kTight);
  }
}

TEST(Layouts, B31_AStepOfLengthZeroChangesNoBit) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    LayoutJob job;
    job.spec = llama_heads(4, kv_heads);
    job.lr = 0;
    job.batches = uneven_batches(1, 4, 6, 10);
    const Tensors given = run_layout(job, {}, 0).trained;
    job.initial = &given;
    for (int64_t op = 1; op <= kv_heads; op *= 2) {
      const LayoutResult got = run_layout(job, {.op = op});
      expect_no_faults(got);
      EXPECT_TRUE(same_bits(got.trained, given)) << kv_heads << " heads on " << op;
    }
  }
}

TEST(Layouts, B29_AxesGivenAsOneAreAsIfAbsent) {
  const LayoutJob job = tiny_job(tiny_model("llama", false, 10), "adamw", "ref", "fp64");
  const LayoutResult one = run_layout(job, {});
  // A stage cuts nothing where there is one rank to cut over.
  for (int64_t zero = 1; zero <= 3; ++zero) {
    const LayoutResult got = run_layout(job, {.zero = zero});
    expect_no_faults(got);
    EXPECT_EQ(got.losses, one.losses);
    EXPECT_TRUE(same_bits(got.trained, one.trained));
  }
  const LayoutResult sequence = run_layout(job, {.sequence = true});
  EXPECT_TRUE(same_bits(sequence.trained, one.trained));
}

TEST(Layouts, B29_ContradictionsNameAllFactors) {
  LayoutJob job;
  job.spec = tiny_model("llama", false, 10);
  job.batches = uneven_batches(1, 12, 6, 10);
  const auto refusal = [&](const Layout& layout) -> std::string {
    try {
      layout_config(job, layout);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const std::string five = refusal({.data = 5});
  EXPECT_NE(five.find("train.global_batch 12"), std::string::npos) << five;
  EXPECT_NE(five.find("parallel.data 5"), std::string::npos) << five;
  EXPECT_NE(five.find("try train.global_batch = 10"), std::string::npos) << five;
  const std::string product = refusal({.data = 3, .accumulation = 8});
  EXPECT_NE(product.find("train.accumulation 8"), std::string::npos) << product;
  EXPECT_NE(product.find("parallel.data 3"), std::string::npos) << product;
}

}  // namespace
}  // namespace weft::test
