// slice and concat along every dim, of integers too, with empty results and empty operands.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

std::string label(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

void add_slices(std::vector<OpCase>& cases) {
  const struct {
    Shape shape;
    int64_t dim, begin, size;
  } list[] = {
      {{7}, 0, 2, 3},         {{1}, 0, 0, 1},
      {{1023}, 0, 510, 513},  {{2, 5}, 0, 1, 1},
      {{3, 9}, 1, 4, 5},      {{3, 9}, 1, 9, 0},
      {{2, 7, 3}, 1, 2, 4},   {{2, 7, 3}, 1, 0, 7},
      {{2, 3, 17}, 2, 8, 9},  {{3, 4, 8}, 0, 1, 2},
      {{0, 4, 8}, 1, 1, 2},   {{2, 0, 8}, 2, 3, 5},
      {{2, 3, 5}, -1, 7, 16}, {{4, 6}, -1, 0, 24},
      {{4, 6}, -1, 24, 0},    {{33, 65}, -1, 100, 2000},
  };
  for (const auto& e : list) {
    cases.push_back({fmt::format("slice_{}_{}_{}_{}", label(e.shape),
                                 e.dim < 0 ? "flat" : std::to_string(e.dim), e.begin, e.size),
                     OpKind::slice,
                     {{"dim", e.dim}, {"begin", e.begin}, {"size", e.size}},
                     {compute(e.shape)},
                     Tolerance::exact});
  }
  cases.push_back({"slice_i32",
                   OpKind::slice,
                   {{"dim", int64_t{1}}, {"begin", int64_t{3}}, {"size", int64_t{4}}},
                   {ints({3, 9}, -100, 1000)},
                   Tolerance::exact});
}

void add_concats(std::vector<OpCase>& cases) {
  const struct {
    const char* label;
    int64_t dim;
    std::vector<Shape> shapes;
  } list[] = {
      {"one", 0, {{5}}},
      {"flat", 0, {{5}, {0}, {3}, {8}}},
      {"rows", 0, {{2, 7}, {1, 7}, {3, 7}}},
      {"columns", 1, {{3, 2}, {3, 9}, {3, 0}, {3, 17}}},
      {"positions", 1, {{2, 4, 3}, {2, 1, 3}, {2, 4, 3}}},
      {"features", 2, {{2, 3, 5}, {2, 3, 12}}},
      {"no_rows", 1, {{0, 4, 8}, {0, 2, 8}}},
      {"nothing", 2, {{2, 3, 0}, {2, 3, 0}}},
      {"large", 1, {{5, 300, 17}, {5, 211, 17}}},
  };
  for (const auto& e : list) {
    std::vector<Operand> inputs;
    for (const Shape& shape : e.shapes) inputs.push_back(compute(shape));
    cases.push_back({fmt::format("concat_{}", e.label),
                     OpKind::concat,
                     {{"dim", e.dim}},
                     inputs,
                     Tolerance::exact});
  }
  cases.push_back({"concat_i32",
                   OpKind::concat,
                   {{"dim", int64_t{1}}},
                   {ints({3, 4}, 0, 100), ints({3, 5}, 0, 100)},
                   Tolerance::exact});
}

}  // namespace

std::vector<OpCase> slice_cases() {
  std::vector<OpCase> cases;
  add_slices(cases);
  add_concats(cases);
  return cases;
}

}  // namespace weft::test
