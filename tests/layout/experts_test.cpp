// One model whatever the layout, with experts: how they are cut, how tokens travel and which ranks
// have none changes neither losses nor weights nor what is dropped.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <ostream>

#include "tests/layout/models.h"

namespace weft::test {
namespace {

struct Spot {
  std::string name;
  Experts experts;
  std::string optimizer;
  bool exact;  // ref in fp64, else cpu in fp32
  Layout layout;
};
void PrintTo(const Spot& spot, std::ostream* out) {
  *out << spot.name << " " << layout_name(spot.layout);
}

LayoutJob job_of(const Experts& experts, const std::string& optimizer, bool exact) {
  const ModelSpec spec = tiny_experts(experts, 10);
  return tiny_job(spec, optimizer, exact ? "ref" : "cpu", exact ? "fp64" : "fp32");
}

/// Loads and drops are counts: equal. Balance and z losses are sums of other orders.
void expect_same_routing(const LayoutResult& got, const LayoutResult& expected, double tolerance) {
  ASSERT_EQ(got.router_stats.size(), expected.router_stats.size());
  for (size_t layer = 0; layer < got.router_stats.size(); ++layer) {
    const auto& a = got.router_stats[layer];
    const auto& b = expected.router_stats[layer];
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const bool count = i < a.size() - 3 || i == a.size() - 1;
      EXPECT_NEAR(a[i], b[i], count ? 0 : tolerance * std::abs(b[i]))
          << "layer " << layer << " entry " << i;
    }
  }
}

class OneModelOfExperts : public ::testing::TestWithParam<Spot> {};

TEST_P(OneModelOfExperts, LossNormWeightsAndRouting) {
  const Spot& spot = GetParam();
  struct Reference {
    LayoutJob job;
    LayoutResult result;
  };
  static std::map<std::string, Reference> known;
  const auto [found, fresh] =
      known.try_emplace(fmt::format("{} {} {}", spot.name, spot.optimizer, spot.exact));
  Reference& reference = found->second;
  if (fresh) {
    reference.job = job_of(spot.experts, spot.optimizer, spot.exact);
    reference.result = run_layout(reference.job, {});
  }
  const LayoutResult got = run_layout(reference.job, spot.layout);
  expect_one_model(reference.job, got, reference.result, spot.exact ? kTight : Tolerances{});
  expect_same_routing(got, reference.result, spot.exact ? 1e-9 : 1e-3);
}

const Experts kTop1{.top_k = 1};
const Experts kTop1Capacity{.top_k = 1, .capacity_factor = 1.0};
const Experts kTop2{.top_k = 2};
const Experts kTop2Capacity{.top_k = 2, .capacity_factor = 1.0};
const Experts kShared{.top_k = 2, .shared = 2, .first_dense = 1};
const Experts kSharedCapacity{.top_k = 2, .capacity_factor = 1.0, .shared = 1};
const Experts kSigmoid{.top_k = 2, .shared = 1, .sigmoid = true};

const std::vector<Layout> kLayouts = {
    {.data = 2},
    {.data = 2, .expert = 2},
    {.data = 4, .expert = 4},
    {.data = 4, .expert = 2},
    {.op = 2},
    {.op = 2, .sequence = true},
    {.data = 2, .op = 2, .expert = 2},
    {.data = 2, .op = 2, .sequence = true, .zero = 1, .expert = 2},
    {.data = 2, .zero = 1, .expert = 2},
    {.data = 4, .zero = 2, .expert = 2},
    {.data = 4, .zero = 3, .expert = 2},
    {.data = 2, .op = 2, .sequence = true, .zero = 3, .expert = 2},
    {.accumulation = 3},
    {.data = 2, .accumulation = 2, .expert = 2},
};

/// Every layout with both ways of moving rows; the other models and fp32 go round.
std::vector<Spot> spots() {
  std::vector<Spot> all;
  size_t turn = 0;
  for (const Layout& layout : kLayouts) {
    all.push_back({"top1", kTop1, "sgd", true, layout});
    all.push_back({"top1_capacity", kTop1Capacity, "adamw", true, layout});
    all.push_back({"top2", kTop2, "adamw", true, layout});
    all.push_back({"top2_capacity", kTop2Capacity, "sgd", true, layout});
    switch (turn++ % 3) {
      case 0: all.push_back({"shared", kShared, "sgd", true, layout}); break;
      case 1: all.push_back({"shared_capacity", kSharedCapacity, "adamw", false, layout}); break;
      default: all.push_back({"sigmoid", kSigmoid, "adamw", true, layout}); break;
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Spots, OneModelOfExperts, ::testing::ValuesIn(spots()),
                         [](const auto& tested) {
                           return tested.param.name + "_" + layout_name(tested.param.layout);
                         });

/// `job` with routers that are all zero: every token goes to the first experts.
LayoutJob idle_job(const Experts& experts, Tensors& initial) {
  LayoutJob job = job_of(experts, "sgd", true);
  initial = run_layout(job, {}, 1).initial;
  for (auto& [name, tensor] : initial) {
    if (!name.ends_with("mlp.gate.weight")) continue;
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, 0.0);
  }
  job.initial = &initial;
  clip_at_half(job);
  return job;
}

TEST(Experts, B35_IdleExpertsFinishAndAgree) {
  for (const Experts& experts : {kTop1, kTop1Capacity}) {
    Tensors initial;
    const LayoutJob job = idle_job(experts, initial);
    const LayoutResult one = run_layout(job, {}, 1);
    EXPECT_GT(one.router_stats[0][0], 0) << "expert 0 has tokens";
    EXPECT_EQ(one.router_stats[0][1] + one.router_stats[0][2] + one.router_stats[0][3], 0);
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout_name(layout));
      expect_one_model(job, run_layout(job, layout, 1), one, kTight);
    }
  }
}

TEST(Experts, B13_BalanceLossIsTheNumberOfChoicesWhateverTheLayout) {
  Tensors initial;
  const LayoutJob job = idle_job(kTop2, initial);
  const auto sequences = static_cast<double>(job.batches[0].tokens.type.shape[0]);
  for (const Layout& layout : kLayouts) {
    const LayoutResult got = run_layout(job, layout, 1);
    const size_t balance = got.router_stats[0].size() - 3;
    EXPECT_NEAR(got.router_stats[0][balance] / sequences, 2.0, 1e-12) << layout_name(layout);
  }
}

/// One step of plain SGD at rate 1 shows gradients as they are: Adam and clipping would hide a
/// factor. Router, experts and the layers below learn the same wherever experts are.
TEST(Experts, B12_B34_OneStepOfSgdIsTheSameWhereverExpertsAre) {
  for (Experts experts : {kTop1, kTop2, kTop2Capacity}) {
    LayoutJob job = job_of(experts, "sgd", true);
    job.spec.moe.aux_coef = 0;
    job.lr = 1;
    job.weight_decay = 0;
    job.clip = 0;
    const LayoutResult one = run_layout(job, {}, 1);
    for (const Layout& layout :
         {Layout{.data = 2}, Layout{.data = 2, .expert = 2}, Layout{.data = 4, .expert = 2},
          Layout{.data = 4, .expert = 4}, Layout{.data = 2, .op = 2, .expert = 2}}) {
      SCOPED_TRACE(layout_name(layout));
      const LayoutResult got = run_layout(job, layout, 1);
      expect_no_faults(got);
      EXPECT_NEAR(got.norms[0], one.norms[0], 1e-12 * one.norms[0]);
      expect_same_tensors(got.trained, one.trained, 1e-11);
      for (const auto& [name, tensor] : one.trained) {
        EXPECT_FALSE(tensor.bytes == one.initial.at(name).bytes) << name << " did not learn";
      }
    }
  }
}

TEST(Experts, B35_PaddingIsNotRoutedAndNoLayoutWaits) {
  for (const Experts& experts : {kTop2, kTop2Capacity}) {
    LayoutJob job = job_of(experts, "sgd", true);
    for (Batch& batch : job.batches) {
      const int64_t rows = batch.tokens.type.shape[0], seq_len = batch.tokens.type.shape[1];
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t length = row % (seq_len + 1);
        batch.lengths.push_back(static_cast<int32_t>(length));
        for (int64_t i = length; i < seq_len; ++i) batch.labels.set(row * seq_len + i, -100);
      }
    }
    clip_at_half(job);
    const LayoutResult one = run_layout(job, {});
    int64_t tokens = 0;
    for (const int32_t length : job.batches[0].lengths) tokens += length;
    const auto& stats = one.router_stats[0];
    EXPECT_EQ(stats[0] + stats[1] + stats[2] + stats[3], 2.0 * static_cast<double>(tokens));
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout_name(layout));
      const LayoutResult got = run_layout(job, layout);
      expect_one_model(job, got, one, kTight);
      expect_same_routing(got, one, 1e-9);
    }
  }
}

}  // namespace
}  // namespace weft::test
