// Every placement of every class with every recompute and order in every layout, 50 steps: weeks
// of work, no part of the usual tests. Build and run weft_tiers_full; --gtest_filter picks models
// and layouts, `--sample N --seed S` draws N of all cases.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "tests/tiers/placements.h"

namespace weft::test {
namespace {

constexpr int64_t kSteps = 50;

/// Set by the command line; a sample of 0 is everything.
size_t g_sample = 0;
uint64_t g_seed = 1;
size_t g_run = 0;

struct Product {
  TierModel model;
  Layout layout;
};
std::string product_name(const Product& p) {
  return tier_model_name(p.model) + "_" + layout_name(p.layout);
}
std::vector<Product> products() {
  std::vector<Product> all;
  for (const TierModel& model :
       {TierModel{}, TierModel{.family = "gpt2"}, TierModel{.compute = "fp32"},
        TierModel{.family = "gpt2", .optimizer = "sgd"}}) {
    for (const Layout& layout : tier_layouts()) all.push_back({model, layout});
  }
  return all;
}

std::vector<Placement> placements() {
  const std::string tiers = "dhns";
  const std::optional<int64_t> windows[] = {{}, int64_t{1}, 300'001, 98'304, 1 << 20};
  std::vector<Placement> all;
  const auto add = [&](const Placement& base) {
    for (const char* recompute : {"none", "selective", "full"}) {
      for (const bool vertical : {false, true}) {
        all.push_back(base);
        all.back().prefetch = windows[all.size() % 5];
        all.back().recompute = recompute;
        all.back().vertical = vertical;
      }
    }
  };
  for (const char optimizer : tiers) {
    for (const char weights : tiers) {
      for (const char gradients : tiers) {
        for (const char activations : tiers) {
          for (const bool on_host : {false, true}) {
            for (const bool late : {false, true}) {
              add({.classes = {optimizer, weights, gradients, activations},
                   .update_on_host = on_host,
                   .late_update = late});
            }
          }
        }
      }
    }
  }
  return all;
}

/// Cases by number: product * placements + placement.
std::set<size_t> chosen(size_t total) {
  std::vector<size_t> all(total);
  std::iota(all.begin(), all.end(), size_t{0});
  if (g_sample == 0 || g_sample >= total) return {all.begin(), all.end()};
  std::vector<size_t> picked;
  std::sample(all.begin(), all.end(), std::back_inserter(picked), g_sample,
              std::mt19937_64(g_seed));
  return {picked.begin(), picked.end()};
}

class FullTiers : public ::testing::TestWithParam<size_t> {};

TEST_P(FullTiers, EveryPlacement) {
  static const std::vector<Placement> every = placements();
  static const std::set<size_t> wanted = chosen(products().size() * every.size());
  const auto [model, layout] = products()[GetParam()];
  const auto begin = wanted.lower_bound(GetParam() * every.size());
  const auto end = wanted.lower_bound((GetParam() + 1) * every.size());
  if (begin == end) return;  // no case of the sample
  const ColdFolder cold;
  const LayoutJob job = tier_job(model, kSteps);
  const LayoutResult device = run_layout(job, layout);
  for (auto number = begin; number != end; ++number) {
    const Placement& placement = every[*number % every.size()];
    SCOPED_TRACE(placement_name(placement));
    const LayoutResult got = run_layout(placed(job, placement, {cold.path()}), layout);
    expect_same_run(got, device);
    // Recompute may leave no activation to move.
    if (placement.recompute == "none") expect_moves(got, placement);
    ++g_run;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FullTiers, ::testing::Range(size_t{0}, products().size()),
                         [](const auto& tested) { return product_name(products()[tested.param]); });

}  // namespace

/// Takes the options of this program out of the arguments; false when one is not understood.
bool read_options(int& count, char** arguments) {
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const bool sample = std::strcmp(arguments[i], "--sample") == 0;
    if (!sample && std::strcmp(arguments[i], "--seed") != 0) {
      arguments[kept++] = arguments[i];
      continue;
    }
    if (++i == count) return false;
    char* end = nullptr;
    const uint64_t value = std::strtoull(arguments[i], &end, 10);
    if (end == arguments[i] || *end != 0) return false;
    (sample ? g_sample : g_seed) = value;
  }
  count = kept;
  return true;
}

void report() {
  fmt::print("{} of {} cases run, {} steps each\n", g_run, products().size() * placements().size(),
             kSteps);
}

}  // namespace weft::test

int main(int count, char** arguments) {
  if (!weft::test::read_options(count, arguments)) {
    fmt::print(stderr, "usage: weft_tiers_full [--sample N] [--seed S] [gtest options]\n");
    return 2;
  }
  testing::InitGoogleTest(&count, arguments);
  const int result = RUN_ALL_TESTS();
  weft::test::report();
  return result;
}
