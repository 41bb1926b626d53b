#include "tests/tiers/placements.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "weft/base/check.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

OffloadPolicy policy_of(char tier) {
  switch (tier) {
    case 'a': return {"auto", {}};
    case 'd': return {"device", {}};
    case 'h': return {"host", {}};
    case 'n': return {"nvme", {}};
    case 's': return {"", {{"device", 0.25}, {"host", 0.25}, {"nvme", 0.5}}};
    default: throw BugError("tiers", fmt::format("no tier '{}'", tier));
  }
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

ColdFolder::ColdFolder() {
  static std::atomic<int> made = 0;
  path_ = fs::temp_directory_path() / fmt::format("weft-tiers-{}-{}", getpid(), made++);
  fs::create_directories(path_);
}

ColdFolder::~ColdFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

int64_t ColdFolder::files() const {
  return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
}

bool Placement::uses(Tier tier) const {
  const std::string letters = tier == Tier::nvme ? "ns" : tier == Tier::host ? "hs" : "dsa";
  return classes.find_first_of(letters) != std::string::npos;
}

std::string placement_name(const Placement& placement) {
  std::string name = placement.classes;
  name += placement.update_on_host ? "_host" : "_device";
  if (placement.late_update) name += "_late";
  if (placement.prefetch) name += fmt::format("_p{}", *placement.prefetch);
  if (placement.recompute != "none") name += "_" + placement.recompute;
  if (placement.vertical) name += "_vertical";
  return name;
}

LayoutJob placed(LayoutJob job, const Placement& placement,
                 const std::vector<std::string>& folders) {
  if (placement.recompute != "none") job.recompute.policy = placement.recompute;
  if (placement.vertical) job.microbatch_order = "vertical";
  job.tune = [placement, folders, before = job.tune](Config& config) {
    if (before) before(config);
    config.memory.nvme = folders;
    OffloadConfig& offload = config.offload;
    offload.optimizer = policy_of(placement.classes.at(0));
    offload.weights = policy_of(placement.classes.at(1));
    offload.gradients = policy_of(placement.classes.at(2));
    offload.activations = policy_of(placement.classes.at(3));
    offload.update_on = placement.update_on_host ? "host" : "device";
    offload.late_update = placement.late_update ? "on" : "off";
    offload.prefetch = placement.prefetch;
  };
  return job;
}

std::string tier_model_name(const TierModel& model) {
  return fmt::format("{}_{}_{}", model.family, model.compute, model.optimizer);
}

LayoutJob tier_job(const TierModel& model, int64_t steps) {
  const bool gpt2 = model.family == "gpt2";
  ModelConfig config;
  config.family = model.family.starts_with("moe") ? "moe" : model.family;
  config.hidden_size = 32;
  config.intermediate_size = 66;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  if (!gpt2) config.num_key_value_heads = 2;
  config.vocab_size = 257;
  config.max_position_embeddings = 32;
  config.tie_word_embeddings = gpt2;
  config.initializer_range = 0.1;
  if (gpt2) config.dropout = 0.1;
  if (config.family == "moe") {
    config.moe_intermediate_size = 48;
    config.num_experts = 4;
    config.num_experts_per_tok = 2;
    config.num_shared_experts = 1;
    config.router_aux_loss_coef = 0.02;
    if (model.family == "moe_capacity") config.capacity_factor = 1.0;
  }
  LayoutJob job;
  job.spec = make_model_spec(config, {});
  job.compute = model.compute;
  job.optimizer = model.optimizer;
  job.lr = model.optimizer == "sgd" ? 0.1 : 1e-2;
  if (model.optimizer == "sgd") job.momentum = 0.9;
  job.weight_decay = 0.1;
  job.clip = 0.5;
  job.batches = uneven_batches(steps, 12, 32, 257);
  return job;
}

std::vector<Layout> expert_tier_layouts() {
  return {{},
          {.accumulation = 3},
          {.data = 2, .zero = 1, .accumulation = 2, .expert = 2},
          {.data = 4, .zero = 3, .expert = 2},
          {.data = 2, .op = 2, .sequence = true, .zero = 1, .expert = 2}};
}

std::vector<Layout> tier_layouts() {
  return {{},
          {.accumulation = 3},
          {.data = 2},
          {.op = 2, .sequence = true, .accumulation = 2},
          {.data = 2, .zero = 1, .accumulation = 2},
          {.data = 2, .zero = 2},
          {.data = 2, .zero = 3, .accumulation = 2},
          {.data = 2, .op = 2, .sequence = true, .zero = 1},
          {.data = 2, .op = 2, .zero = 3, .accumulation = 2}};
}

void expect_same_run(const LayoutResult& got, const LayoutResult& expected) {
  expect_no_faults(got);
  expect_no_faults(expected);
  ASSERT_FALSE(expected.losses.empty());
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.norms, expected.norms);
  const auto same = [](const Tensors& a, const Tensors& b, const char* what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (const auto& [name, tensor] : b) {
      ASSERT_TRUE(a.contains(name)) << what << " " << name;
      EXPECT_TRUE(a.at(name).bytes == tensor.bytes) << what << " " << name << " has other bits";
    }
  };
  same(got.initial, expected.initial, "initial");
  same(got.trained, expected.trained, "trained");
  same(got.copies, expected.copies, "copy");
  same(got.slots, expected.slots, "slot");
}

void expect_moves(const LayoutResult& result, const Placement& placement) {
  constexpr const char* kClasses[] = {"optimizer", "weights", "gradients", "activations"};
  for (const Plan& plan : result.plans) {
    const std::string text = plan_text(plan);
    for (size_t i = 0; i < 4; ++i) {
      if (placement.classes[i] == 'a') continue;
      const std::string said = fmt::format("offload.{} says so", kClasses[i]);
      EXPECT_TRUE(says(text, said)) << said << " is not in plan.txt";
    }
    for (const Tier tier : {Tier::host, Tier::nvme}) {
      if (!placement.uses(tier)) continue;
      EXPECT_GT(plan.tiers[static_cast<size_t>(tier)].peak_bytes, 0) << tier_name(tier);
    }
    if (!placement.uses(Tier::nvme)) {
      EXPECT_EQ(plan.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes, 0);
    }
  }
}

int64_t state_bytes_in(const Plan& plan, Tier tier) {
  int64_t bytes = 0;
  for (const PlanState& state : plan.states) {
    if (plan.buffers[static_cast<size_t>(state.buffer)].tier == tier) bytes += state.type.bytes();
  }
  return bytes;
}

}  // namespace weft::test
