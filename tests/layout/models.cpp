#include "tests/layout/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft::test {
namespace {

void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double first,
                  double rest, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double tolerance = i == 0 ? first : rest;
    EXPECT_NEAR(got[i], expected[i], tolerance * std::abs(expected[i])) << what << " " << i + 1;
  }
}

/// The gradient of a key bias of gpt2 is zero in exact arithmetic (softmax ignores what is added to
/// all scores of a row): what moves it is rounding noise.
void settle_key_biases(const LayoutJob& job, Tensors& got, const Tensors& expected) {
  if (job.spec.family != Family::gpt2) return;
  const int64_t hidden = job.spec.hidden_size;
  for (auto& [name, tensor] : got) {
    if (!name.ends_with("attn.c_attn.bias")) continue;
    const HostTensor& other = expected.at(name);
    for (int64_t i = hidden; i < 2 * hidden; ++i) {
      EXPECT_LE(std::abs(tensor.get(i) - other.get(i)), 1e-2 * job.lr) << name << " " << i;
      tensor.set(i, other.get(i));
    }
  }
}

}  // namespace

ModelSpec tiny_model(const std::string& name, bool tied, int64_t vocab) {
  const bool gpt2 = name.starts_with("gpt2");
  ModelConfig config;
  config.family = gpt2 ? "gpt2" : "llama";
  config.hidden_size = 16;
  config.intermediate_size = 18;
  config.num_hidden_layers = 2;
  config.num_attention_heads = gpt2 ? 4 : 8;
  if (!gpt2) config.num_key_value_heads = 4;
  config.vocab_size = vocab;
  config.max_position_embeddings = 32;
  config.tie_word_embeddings = tied;
  config.initializer_range = 0.2;
  if (name == "gpt2_dropout") config.dropout = 0.1;
  if (name == "qwen3") config.qk_norm = true;
  ModelSpec spec = make_model_spec(config, {});
  if (name == "qwen2") {
    spec.model_type = "qwen2";
    spec.qkv_bias = true;
  }
  WEFT_CHECK(gpt2 || name == "llama" || name == "qwen2" || name == "qwen3", "layout", "no model {}",
             name);
  return spec;
}

std::vector<std::string> tiny_model_names() {
  return {"gpt2", "gpt2_dropout", "llama", "qwen2", "qwen3"};
}

ModelSpec tiny_experts(const Experts& experts, int64_t vocab) {
  ModelConfig config;
  config.family = "moe";
  config.hidden_size = 16;
  config.intermediate_size = 18;
  config.moe_intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.vocab_size = vocab;
  config.max_position_embeddings = 32;
  config.initializer_range = 0.2;
  config.num_experts = 4;
  config.num_experts_per_tok = experts.top_k;
  config.num_shared_experts = experts.shared;
  config.first_k_dense_replace = experts.first_dense;
  config.capacity_factor = experts.capacity_factor;
  config.router_aux_loss_coef = 0.05;
  config.router_z_loss_coef = 0.01;
  if (experts.sigmoid) {
    config.router_score = "sigmoid";
    config.routed_scaling_factor = 1.5;
    config.n_group = 2;
    config.topk_group = 1;
    config.router_bias_rate = 0.01;
  }
  return make_model_spec(config, {});
}

LayoutJob tiny_job(const ModelSpec& spec, const std::string& optimizer, const std::string& backend,
                   const std::string& compute) {
  LayoutJob job;
  job.spec = spec;
  job.backend = backend;
  job.compute = compute;
  job.optimizer = optimizer;
  job.lr = optimizer == "sgd" ? 0.1 : 1e-2;
  job.weight_decay = 0.1;
  job.batches = uneven_batches(5, 12, 6, spec.vocab_size);
  clip_at_half(job);
  return job;
}

void clip_at_half(LayoutJob& job) {
  job.clip = 0;
  job.clip = run_layout(job, {}, 1).norms.at(0) / 2;
}

void expect_one_model(const LayoutJob& job, const LayoutResult& got, const LayoutResult& expected,
                      const Tolerances& tolerances) {
  expect_no_faults(got);
  ASSERT_EQ(got.initial.size(), expected.initial.size());
  for (const auto& [name, tensor] : expected.initial) {
    ASSERT_TRUE(got.initial.contains(name)) << name;
    EXPECT_TRUE(got.initial.at(name).bytes == tensor.bytes) << name << " starts with other bits";
  }
  ASSERT_FALSE(got.losses.empty());
  EXPECT_GT(got.norms[0], job.clip) << "the job does not clip";
  expect_close(got.losses, expected.losses, tolerances.first, tolerances.losses, "loss of step");
  expect_close(got.norms, expected.norms, tolerances.first, tolerances.norms, "norm of step");
  Tensors trained = got.trained;
  settle_key_biases(job, trained, expected.trained);
  expect_same_tensors(trained, expected.trained, tolerances.weights);
  for (const auto& [name, copy] : got.copies) {
    const HostTensor& master = got.trained.at(name);
    EXPECT_TRUE(copy.bytes == converted(master, copy.type.dtype).bytes)
        << name << " is not its master";
  }
}

void expect_same_tensors(const Tensors& got, const Tensors& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_LE(relative_error(got.at(name), tensor), tolerance) << name;
  }
}

void expect_no_faults(const LayoutResult& result) {
  for (const std::string& fault : result.faults) ADD_FAILURE() << fault;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           return b.contains(entry.first) && b.at(entry.first).bytes == entry.second.bytes;
         });
}

}  // namespace weft::test
