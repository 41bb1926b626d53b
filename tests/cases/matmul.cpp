// matmul, matmul_wgrad, bias_grad. Legend: r rows, k inner, o outer extent.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

struct Extents {
  Shape rows;
  int64_t k, o;
};

// Tails of every vector width, single rows and columns, no rows, inner or outer extent at all, more
// than one tile.
const std::vector<Extents>& extents() {
  static const std::vector<Extents> list = {
      {{1}, 1, 1},    {{1, 1}, 7, 9}, {{3}, 8, 17},  {{2, 5}, 17, 8},   {{9}, 64, 33},
      {{0}, 5, 7},    {{2, 0}, 8, 8}, {{33}, 33, 1}, {{2, 16}, 96, 70}, {{130}, 48, 257},
      {{3, 5}, 0, 9}, {{3, 5}, 9, 0}, {{4}, 0, 0},
  };
  return list;
}

Shape with(Shape rows, int64_t last) {
  rows.push_back(last);
  return rows;
}

Shape weight(bool transpose, int64_t k, int64_t o) { return transpose ? Shape{o, k} : Shape{k, o}; }

std::string label(const Extents& e, bool transpose) {
  std::string rows;
  for (const int64_t extent : e.rows) rows += fmt::format("{}x", extent);
  return fmt::format("{}{}x{}_{}", rows, e.k, e.o, transpose ? "t" : "n");
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  int variant = 0;
  for (const Extents& e : extents()) {
    for (const bool transpose : {true, false}) {
      const Attrs attrs = {{"transpose_w", transpose}};
      const Shape y = with(e.rows, e.o);
      // The four epilogues take turns, so that each meets every kind of extent or its neighbour.
      for (const int epilogue : {variant % 4, (variant + 3) % 4}) {
        const bool bias = (epilogue & 1) != 0, residual = (epilogue & 2) != 0;
        std::vector<int> differentiable = {0, 1};
        if (bias) differentiable.push_back(2);
        if (residual) differentiable.push_back(3);
        cases.push_back({fmt::format("matmul_{}{}{}", label(e, transpose), bias ? "_bias" : "",
                                     residual ? "_residual" : ""),
                         OpKind::matmul,
                         attrs,
                         {compute(with(e.rows, e.k)), compute(weight(transpose, e.k, e.o), 0.3),
                          bias ? param({e.o}) : absent(), residual ? compute(y) : absent()},
                         Tolerance::sum,
                         differentiable});
      }
      const bool acc = variant % 2 == 0;
      cases.push_back({fmt::format("matmul_wgrad_{}{}", label(e, transpose), acc ? "_acc" : ""),
                       OpKind::matmul_wgrad,
                       attrs,
                       {compute(with(e.rows, e.k)), compute(y),
                        acc ? param(weight(transpose, e.k, e.o)) : absent()}});
      ++variant;
    }
    for (const bool acc : {false, true}) {
      cases.push_back({fmt::format("bias_grad_{}{}", label(e, true), acc ? "_acc" : ""),
                       OpKind::bias_grad,
                       {},
                       {compute(with(e.rows, e.o)), acc ? param({e.o}) : absent()}});
    }
  }
  return cases;
}

}  // namespace weft::test
