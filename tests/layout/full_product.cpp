// The whole product of layouts, models, vocabularies and optimizers, in fp32 on cpu; with the small
// vocabulary also in fp64 on ref, where layouts differ by nothing but the order of sums. It takes
// minutes and is no part of the usual tests: build and run weft_layout_full.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/layout/models.h"

namespace weft::test {
namespace {

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = {{}, {.op = 2}, {.op = 3}, {.op = 4}};
  layouts.push_back({.op = 2, .sequence = true});
  layouts.push_back({.op = 3, .sequence = true});
  layouts.push_back({.op = 4, .sequence = true});
  layouts.push_back({.data = 2});
  layouts.push_back({.data = 3});
  for (int64_t zero = 1; zero <= 3; ++zero) layouts.push_back({.data = 2, .zero = zero});
  layouts.push_back({.data = 3, .zero = 3});
  for (const bool sequence : {false, true}) {
    for (int64_t zero = 0; zero <= 3; ++zero) {
      layouts.push_back({.data = 2, .op = 2, .sequence = sequence, .zero = zero});
    }
  }
  layouts.push_back({.data = 3, .op = 4, .sequence = true, .zero = 3});
  // Every layout with the whole batch in one micro-batch, then in more of them.
  const std::vector<Layout> once = layouts;
  for (const int64_t accumulation : {2, 4}) {
    for (Layout layout : once) {
      layout.accumulation = accumulation;
      if (12 % (layout.data * accumulation) == 0) layouts.push_back(layout);
    }
  }
  return layouts;
}

struct Product {
  std::string model;
  bool tied;
  int64_t vocab;
  std::string optimizer;
  bool exact;  // ref in fp64, else cpu in fp32
};

std::vector<Product> all_jobs() {
  std::vector<Product> jobs;
  for (const std::string& model : tiny_model_names()) {
    for (const bool tied : {false, true}) {
      for (const int64_t vocab : {10, 257}) {
        for (const char* optimizer : {"sgd", "adamw"}) {
          jobs.push_back({model, tied, vocab, optimizer, false});
          if (vocab == 10) jobs.push_back({model, tied, vocab, optimizer, true});
        }
      }
    }
  }
  return jobs;
}

std::string job_name(const Product& p) {
  return fmt::format("{}_{}_{}_{}_{}", p.model, p.tied ? "tied" : "untied", p.vocab, p.optimizer,
                     p.exact ? "fp64" : "fp32");
}
void PrintTo(const Product& product, std::ostream* out) { *out << job_name(product); }

class FullProduct : public ::testing::TestWithParam<Product> {};

TEST_P(FullProduct, EveryLayout) {
  const Product& p = GetParam();
  const LayoutJob job = tiny_job(tiny_model(p.model, p.tied, p.vocab), p.optimizer,
                                 p.exact ? "ref" : "cpu", p.exact ? "fp64" : "fp32");
  const LayoutResult reference = run_layout(job, {});
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout_name(layout));
    expect_one_model(job, run_layout(job, layout), reference, p.exact ? kTight : Tolerances{});
  }
}

INSTANTIATE_TEST_SUITE_P(All, FullProduct, ::testing::ValuesIn(all_jobs()),
                         [](const auto& tested) { return job_name(tested.param); });

}  // namespace
}  // namespace weft::test
