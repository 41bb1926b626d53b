// Same bits: recompute and the order of micro-batches are matters of memory and time alone. Losses,
// norms and every state after some steps equal those of the plain run to the bit.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/layout/models.h"

namespace weft::test {
namespace {

/// Three layers: segments of two leave one of its own.
ModelSpec model_of(const std::string& name, double dropout) {
  ModelConfig config;
  const bool experts = name.starts_with("moe");
  config.family = name == "gpt2" ? "gpt2" : experts ? "moe" : "llama";
  config.hidden_size = 16;
  config.intermediate_size = 18;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  if (name != "gpt2") config.num_key_value_heads = 2;
  config.vocab_size = 19;
  config.max_position_embeddings = 8;
  config.initializer_range = 0.2;
  config.dropout = dropout;
  if (name == "qwen3") config.qk_norm = true;
  if (experts) {
    config.num_experts = 4;
    config.num_experts_per_tok = 2;
    config.num_shared_experts = 1;
    config.router_aux_loss_coef = 0.02;
    if (name == "moe_capacity") config.capacity_factor = 1.0;
  }
  return make_model_spec(config, {});
}

struct Case {
  std::string model;
  double dropout = 0;
  std::string compute;
  std::string backend;
  Layout layout;
};

std::string case_name(const Case& c) {
  return fmt::format("{}_{}_{}_{}_{}", c.model, c.dropout > 0 ? "dropout" : "plain", c.compute,
                     c.backend, layout_name(c.layout));
}

void PrintTo(const Case& c, std::ostream* out) { *out << case_name(c); }

LayoutJob job_of(const Case& c) {
  LayoutJob job;
  job.spec = model_of(c.model, c.dropout);
  job.backend = c.backend;
  job.compute = c.compute;
  job.optimizer = "adamw";
  job.lr = 1e-2;
  job.weight_decay = 0.1;
  job.clip = 1.0;
  job.batches = uneven_batches(3, 4, 6, job.spec.vocab_size);
  return job;
}

/// A job with other keys of recompute and order.
struct Variant {
  const char* name;
  RecomputeConfig recompute;
  const char* order = "horizontal";
};

const std::vector<Variant> kRecompute = {
    {"full", {"full", 1}},
    {"full every 2", {"full", 2}},
    {"selective", {"selective", 1}},
};

const std::vector<Variant> kVertical = {
    {"vertical", {}, "vertical"},
    {"vertical, full", {"full", 1}, "vertical"},
    {"vertical, selective", {"selective", 1}, "vertical"},
};

int64_t recomputed_steps(const LayoutResult& result) {
  int64_t count = 0;
  for (const PlanStep& step : result.plans[0].program("train").steps) count += step.recomputed;
  return count;
}

void expect_same_bits(const Tensors& got, const Tensors& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(got.contains(name)) << what << " " << name;
    EXPECT_TRUE(got.at(name).bytes == tensor.bytes) << what << " " << name << " has other bits";
  }
}

void expect_same_run(const Case& c, const std::vector<Variant>& variants) {
  LayoutJob job = job_of(c);
  const LayoutResult plain = run_layout(job, c.layout);
  EXPECT_EQ(recomputed_steps(plain), 0);
  EXPECT_NE(plain.losses[0], plain.losses[2]) << "nothing was learnt";
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    job.recompute = variant.recompute;
    job.microbatch_order = variant.order;
    const LayoutResult got = run_layout(job, c.layout);
    for (const std::string& fault : got.faults) ADD_FAILURE() << fault;
    EXPECT_EQ(recomputed_steps(got) > 0, variant.recompute.policy != "none");
    EXPECT_EQ(got.losses, plain.losses);
    EXPECT_EQ(got.norms, plain.norms);
    expect_same_bits(got.trained, plain.trained, "weight");
    expect_same_bits(got.copies, plain.copies, "copy");
    expect_same_bits(got.slots, plain.slots, "moment");
  }
}

std::vector<Case> cases(const std::vector<int64_t>& accumulations) {
  const std::vector<Layout> layouts = {
      {}, {.data = 2}, {.op = 2, .sequence = true}, {.data = 2, .zero = 3}};
  std::vector<Case> list;
  for (const std::string model : {"gpt2", "llama", "qwen3"}) {
    for (const double dropout : {0.0, 0.1}) {
      for (const std::string compute : {"fp32", "bf16"}) {
        for (const std::string backend : {"cpu", "ref"}) {
          // The plain loops of ref are there to show that it is not a matter of kernels.
          if (backend == "ref" && (dropout == 0.0 || compute == "fp32")) continue;
          for (Layout layout : layouts) {
            for (const int64_t accumulation : accumulations) {
              layout.accumulation = accumulation;
              list.push_back({model, dropout, compute, backend, layout});
            }
          }
        }
      }
    }
  }
  return list;
}

/// Routing and drops are made again as well.
std::vector<Case> expert_cases() {
  const std::vector<Layout> layouts = {
      {.accumulation = 2},
      {.data = 2, .zero = 3, .expert = 2},
      {.data = 2, .op = 2, .sequence = true, .accumulation = 2, .expert = 2}};
  std::vector<Case> list;
  for (const char* model : {"moe", "moe_capacity"}) {
    for (const char* compute : {"fp32", "bf16"}) {
      for (const Layout& layout : layouts) list.push_back({model, 0.1, compute, "cpu", layout});
    }
  }
  return list;
}

class SameBits : public ::testing::TestWithParam<Case> {};

TEST_P(SameBits, RecomputeOnAndOff) { expect_same_run(GetParam(), kRecompute); }

INSTANTIATE_TEST_SUITE_P(B25, SameBits, ::testing::ValuesIn(cases({1, 2})),
                         [](const auto& tested) { return case_name(tested.param); });

INSTANTIATE_TEST_SUITE_P(Experts, SameBits, ::testing::ValuesIn(expert_cases()),
                         [](const auto& tested) { return case_name(tested.param); });

class SameOrder : public ::testing::TestWithParam<Case> {};

TEST_P(SameOrder, VerticalAndHorizontal) { expect_same_run(GetParam(), kVertical); }

INSTANTIATE_TEST_SUITE_P(MicroBatches, SameOrder, ::testing::ValuesIn(cases({2})),
                         [](const auto& tested) { return case_name(tested.param); });

INSTANTIATE_TEST_SUITE_P(Experts, SameOrder, ::testing::ValuesIn(expert_cases()),
                         [](const auto& tested) { return case_name(tested.param); });

TEST(SameBitsOfRanks, UnequalPiecesOfThreeRanks) {
  // Four heads on three ranks: what a rank recomputes must not depend on the size of its pieces.
  for (const std::string model : {"gpt2", "llama"}) {
    Case c{model, 0.1, "fp32", "cpu", {.op = 3, .sequence = true, .accumulation = 2}};
    if (model == "llama") c.layout = {.data = 2, .op = 2, .sequence = true, .zero = 3};
    expect_same_run(c, kRecompute);
    if (c.layout.accumulation > 1) expect_same_run(c, kVertical);
  }
}

}  // namespace
}  // namespace weft::test
