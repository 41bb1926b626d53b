// What went wrong elsewhere with states off the device, at the level of training.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/tiers/placements.h"
#include "weft/ops/op_kind.h"

namespace weft::test {
namespace {

/// A llama with sizes that no block divides.
LayoutJob odd_job(int64_t hidden, int64_t vocab, const std::string& compute) {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = hidden;
  config.intermediate_size = 2 * hidden + 1;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 1;
  config.num_key_value_heads = 1;
  config.head_dim = 2;
  config.vocab_size = vocab;
  config.initializer_range = 0.1;
  LayoutJob job;
  job.spec = make_model_spec(config, {});
  job.compute = compute;
  job.optimizer = "adamw";
  job.lr = 1e-2;
  job.weight_decay = 0.1;
  job.clip = 0.5;
  job.batches = uneven_batches(3, 4, 7, vocab);
  return job;
}

/// Most pieces that the update of one tensor is done in.
int64_t most_pieces(const Plan& plan) {
  std::map<std::string, int64_t> stores;  // state -> pieces
  int64_t most = 0;
  for (const PlanStep& step : plan.program("train").steps) {
    if (step.op != OpKind::store) continue;
    const std::string& state = plan.buffers[static_cast<size_t>(step.outputs[0])].name;
    most = std::max(most, ++stores[state]);
  }
  return most;
}

TEST(TierReports, B16_SizesThatNoBlockDivides) {
  const ColdFolder cold;
  for (const std::string compute : {"bf16", "fp32"}) {
    for (const int64_t hidden : {1, 3, 7, 127, 129}) {
      const LayoutJob job = odd_job(hidden, 257, compute);
      for (const Layout& layout : {Layout{}, Layout{.data = 2, .zero = 2, .accumulation = 2}}) {
        if (hidden <= 3 && layout.data > 1) continue;  // sharding refuses gains of such sizes
        const LayoutResult device = run_layout(job, layout);
        for (const bool late : {false, true}) {
          const Placement placement{
              .classes = "nnnd", .update_on_host = late, .late_update = late, .prefetch = 1};
          SCOPED_TRACE(fmt::format("{} hidden {} {} {}", compute, hidden, layout_name(layout),
                                   placement_name(placement)));
          expect_same_run(run_layout(placed(job, placement, {cold.path()}), layout), device);
        }
      }
    }
  }
}

TEST(TierReports, B45_TheDiskTrainsLikeTheDevice) {
  const ColdFolder cold;
  const LayoutJob job = tier_job({}, 50);
  const std::pair<int64_t, std::vector<std::string>> tried[] = {
      {1, {"hddd", "nddd", "dhdd", "dndd", "nndd"}}, {4, {"hndd", "nndd"}}};
  for (const auto& [accumulation, all_classes] : tried) {
    const Layout layout{.accumulation = accumulation};
    const LayoutResult device = run_layout(job, layout);
    for (const std::string& classes : all_classes) {
      const Placement placement{.classes = classes,
                                .update_on_host = classes[0] == 'h',
                                .late_update = classes[1] == 'n',
                                .prefetch = 1};
      SCOPED_TRACE(placement_name(placement));
      expect_same_run(run_layout(placed(job, placement, {cold.path()}), layout), device);
    }
  }
}

/// A batch whose rows all have labels, so that every logit has a gradient.
std::vector<Batch> full_batches(int64_t steps, int64_t vocab) {
  std::vector<Batch> batches = uneven_batches(steps, 12, 7, vocab);
  for (Batch& batch : batches) {
    for (int64_t i = 0; i < batch.labels.size(); ++i) {
      batch.labels.set(i, static_cast<double>((i * 5 + 3) % vocab));
      batch.tokens.set(i, static_cast<double>((i * 7 + 1) % vocab));
    }
  }
  return batches;
}

TEST(TierReports, B58_TheHostsAdamIsTheDevices) {
  const ColdFolder cold;
  for (const auto& [beta2, eps] : {std::pair{0.95, 1e-8}, std::pair{0.999, 1e-15}}) {
    for (const int64_t vocab : {1, 7, 8, 15, 16, 17, 1023}) {
      LayoutJob job = odd_job(7, vocab, "fp32");
      job.lr = 1e-3;
      job.batches = full_batches(vocab == 1023 ? 20 : 100, vocab);
      job.tune = [beta2 = beta2, eps = eps](Config& config) {
        config.optimizer.beta2 = beta2;
        config.optimizer.eps = eps;
      };
      SCOPED_TRACE(fmt::format("vocabulary {} beta2 {} eps {}", vocab, beta2, eps));
      const LayoutResult device = run_layout(job, {});
      const Placement placement{.classes = "hddd", .update_on_host = true};
      const LayoutResult host = run_layout(placed(job, placement, {}), {});
      expect_same_run(host, device);
      const std::vector<PlanStep>& steps = host.plans[0].program("train").steps;
      EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const PlanStep& step) {
        return step.op == OpKind::adamw && step.lane == Lane::host;
      }));
    }
  }
}

TEST(TierReports, B58_OneStepFromNothingIsDecayAndOneLearningRate) {
  LayoutJob job = odd_job(16, 17, "fp32");
  job.lr = 0.1;
  job.clip = 0;
  job.batches = full_batches(1, 17);
  job.tune = [](Config& config) { config.optimizer.eps = 1e-15; };
  const Placement placement{.classes = "hhdd", .update_on_host = true};
  const LayoutResult host = run_layout(placed(job, placement, {}), {});
  for (const auto& [name, after] : host.trained) {
    const HostTensor& before = host.initial.at(name);
    const HostTensor& m = host.slots.at(name + "@m");
    const double kept = name.find("norm") == std::string::npos ? 1 - 0.1 * 0.1 : 1.0;
    int64_t tested = 0;
    for (int64_t i = 0; i < after.size(); ++i) {
      if (std::abs(m.get(i)) < 1e-9) continue;  // g = 10 m
      ++tested;
      const double expected = before.get(i) * kept - 0.1 * (m.get(i) > 0 ? 1 : -1);
      ASSERT_NEAR(after.get(i), expected, 1e-5) << name << " " << i;
    }
    EXPECT_GT(tested, after.size() / 4) << name;
  }
}

TEST(TierReports, B59_OneStepCountForOneTwoAndSevenPieces) {
  // 14336 elements: two pieces of 8192 (32 KiB of fp32), seven of 2048.
  LayoutJob job = odd_job(16, 896, "bf16");
  for (const std::string optimizer : {"adamw", "sgd"}) {
    job.optimizer = optimizer;
    job.momentum = optimizer == "sgd" ? 0.9 : 0.0;
    const LayoutResult device = run_layout(job, {});
    const ColdFolder cold;
    for (const char tier : {'h', 'n'}) {
      for (const bool on_host : {false, true}) {
        const std::pair<int64_t, int64_t> windows[] = {
            {12 * 65'536, 1}, {12 * 32'768, 2}, {12 * 8'192, 7}};
        for (const auto& [window, pieces] : windows) {
          const Placement placement{
              .classes = {tier, 'd', 'd', 'd'}, .update_on_host = on_host, .prefetch = window};
          SCOPED_TRACE(optimizer + " " + placement_name(placement));
          const LayoutResult got = run_layout(placed(job, placement, {cold.path()}), {});
          EXPECT_EQ(most_pieces(got.plans[0]), pieces);
          expect_same_run(got, device);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
