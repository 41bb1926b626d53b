// One model whatever the layout: each layout, model, vocabulary, optimizer and stage at least once,
// in pairs that cover each other. weft_layout_full runs the whole product.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "tests/layout/models.h"

namespace weft::test {
namespace {

struct Spot {
  std::string model;
  bool tied;
  int64_t vocab;
  std::string optimizer;
  bool exact;  // ref in fp64, else cpu in fp32
  Layout layout;
};

LayoutJob job_of(const Spot& spot) {
  return tiny_job(tiny_model(spot.model, spot.tied, spot.vocab), spot.optimizer,
                  spot.exact ? "ref" : "cpu", spot.exact ? "fp64" : "fp32");
}

std::string job_name(const Spot& spot) {
  return fmt::format("{}_{}_{}_{}_{}", spot.model, spot.tied ? "tied" : "untied", spot.vocab,
                     spot.optimizer, spot.exact ? "fp64" : "fp32");
}

struct Reference {
  LayoutJob job;
  LayoutResult result;
};

const Reference& reference_of(const Spot& spot) {
  static std::map<std::string, Reference> known;
  const auto [found, fresh] = known.try_emplace(job_name(spot));
  if (fresh) {
    found->second.job = job_of(spot);
    found->second.result = run_layout(found->second.job, {});
  }
  return found->second;
}

void PrintTo(const Spot& spot, std::ostream* out) {
  *out << job_name(spot) << " " << layout_name(spot.layout);
}

class OneModel : public ::testing::TestWithParam<Spot> {};

TEST_P(OneModel, LossNormAndWeights) {
  const Spot& spot = GetParam();
  const Reference& reference = reference_of(spot);
  const LayoutResult got = run_layout(reference.job, spot.layout);
  expect_one_model(reference.job, got, reference.result, spot.exact ? kTight : Tolerances{});
}

const std::vector<Spot> kSpots = {
    {"gpt2", true, 10, "sgd", true, {.op = 2}},
    {"gpt2", true, 10, "sgd", true, {.op = 3}},
    {"gpt2", true, 10, "sgd", true, {.op = 4, .sequence = true}},
    {"gpt2", true, 10, "sgd", true, {.data = 2, .op = 2, .zero = 3}},
    {"gpt2", false, 257, "adamw", false, {.op = 4}},
    {"gpt2", false, 257, "adamw", false, {.data = 3}},
    {"gpt2", false, 257, "adamw", false, {.data = 2, .op = 2, .sequence = true, .zero = 1}},
    {"gpt2_dropout", true, 257, "adamw", false, {.op = 2, .sequence = true}},
    {"gpt2_dropout", true, 257, "adamw", false, {.data = 2, .zero = 2, .accumulation = 2}},
    {"gpt2_dropout", false, 10, "sgd", true, {.data = 2, .op = 2, .sequence = true, .zero = 2}},
    {"gpt2_dropout", false, 10, "sgd", true, {.op = 3, .sequence = true}},
    {"gpt2_dropout", false, 10, "sgd", true, {.accumulation = 4}},
    {"llama", false, 10, "adamw", true, {.op = 3}},
    {"llama", false, 10, "adamw", true, {.op = 4, .sequence = true}},
    {"llama", false, 10, "adamw", true, {.data = 3, .zero = 3}},
    {"llama", false, 10, "adamw", true, {.data = 2, .op = 2, .sequence = true, .zero = 3}},
    {"llama", true, 257, "sgd", false, {.op = 2}},
    {"llama", true, 257, "sgd", false, {.op = 2, .sequence = true}},
    {"llama", true, 257, "sgd", false, {.data = 2}},
    {"llama", true, 257, "sgd", false, {.data = 2, .zero = 1, .accumulation = 2}},
    {"llama", true, 257, "sgd", false, {.data = 2, .op = 2, .accumulation = 3}},
    {"qwen2", true, 10, "adamw", true, {.op = 4}},
    {"qwen2", true, 10, "adamw", true, {.op = 2, .sequence = true}},
    {"qwen2", true, 10, "adamw", true, {.data = 2, .op = 2, .zero = 1}},
    {"qwen2", false, 257, "sgd", false, {.data = 2, .zero = 3}},
    {"qwen2", false, 257, "sgd", false, {.data = 2, .op = 2, .sequence = true}},
    {"qwen3", false, 257, "adamw", false, {.op = 4, .sequence = true}},
    {"qwen3", false, 257, "adamw", false, {.data = 2, .op = 2, .zero = 2}},
    {"qwen3", true, 10, "sgd", true, {.op = 3}},
    {"qwen3", true, 10, "sgd", true, {.op = 2, .sequence = true, .accumulation = 2}},
    {"qwen3", true, 10, "sgd", true, {.data = 2, .zero = 2}},
    {"qwen3", true, 10, "sgd", true, {.data = 2, .op = 4, .sequence = true, .zero = 3}},
};

INSTANTIATE_TEST_SUITE_P(Spots, OneModel, ::testing::ValuesIn(kSpots), [](const auto& tested) {
  return job_name(tested.param) + "_" + layout_name(tested.param.layout);
});

}  // namespace
}  // namespace weft::test
