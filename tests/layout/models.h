// Tiny models of every family, jobs on them, and what "one model" means for two layouts.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/harness.h"

namespace weft::test {

/// "gpt2", "gpt2_dropout", "llama", "qwen2", "qwen3": hidden 16, ffn 18, two layers, 4 key/value
/// heads, which 8 query heads share except in gpt2.
ModelSpec tiny_model(const std::string& name, bool tied, int64_t vocab);
std::vector<std::string> tiny_model_names();

/// A tiny mixture of experts: hidden 16, two layers, 4 experts of width 12 with a router that is
/// far from even, balance and z loss.
struct Experts {
  int64_t top_k = 2;
  double capacity_factor = 0.0;  // 0 = dropless
  int64_t shared = 0;
  int64_t first_dense = 0;
  bool sigmoid = false;  // with groups and a selection bias that moves
};
ModelSpec tiny_experts(const Experts& experts, int64_t vocab);

/// 12 rows of 6 tokens, 5 steps, clipped to half the norm of the first step of one rank. sgd:
/// plain, with weight decay; adamw.
LayoutJob tiny_job(const ModelSpec& spec, const std::string& optimizer, const std::string& backend,
                   const std::string& compute);
/// Sets job.clip to half the norm of its first step.
void clip_at_half(LayoutJob& job);

struct Tolerances {
  double first = 1e-5;   // loss and norm of step 1, relative
  double losses = 1e-4;  // of all steps
  double norms = 1e-3;   // of all steps; a norm is worse conditioned than a loss
  double weights = 1e-4;
};
/// Those of exact arithmetic up to the order of sums in f64.
inline constexpr Tolerances kTight{1e-12, 1e-10, 1e-9, 1e-9};

/// Fails unless `got` is the model of `expected`: the same initial bits, losses, norms and weights,
/// no faults, and copies that are equal to what they are copies of.
void expect_one_model(const LayoutJob& job, const LayoutResult& got, const LayoutResult& expected,
                      const Tolerances& tolerances);
/// Only the weights after the last step.
void expect_same_tensors(const Tensors& got, const Tensors& expected, double tolerance);

void expect_no_faults(const LayoutResult& result);
bool same_bits(const Tensors& a, const Tensors& b);

}  // namespace weft::test
