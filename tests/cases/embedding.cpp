// embedding, embedding_grad, select_rows.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  const struct {
    int64_t B, S, V, H;
  } list[] = {{1, 1, 1, 1},  {2, 3, 5, 7},     {1, 9, 257, 8},
              {2, 8, 3, 17}, {3, 33, 257, 64}, {0, 4, 5, 8}};
  for (const auto& e : list) {
    const std::string label = fmt::format("{}x{}_{}x{}", e.B, e.S, e.V, e.H);
    const Operand ids = ints({e.B, e.S}, 0, e.V);
    cases.push_back({"embedding_" + label,
                     OpKind::embedding,
                     {},
                     {ids, compute({e.V, e.H})},
                     Tolerance::exact,
                     {1}});
    for (const bool acc : {false, true}) {
      cases.push_back({fmt::format("embedding_grad_{}{}", label, acc ? "_acc" : ""),
                       OpKind::embedding_grad,
                       {{"rows", e.V}},
                       {ids, compute({e.B, e.S, e.H}), acc ? param({e.V, e.H}) : absent()}});
    }
    if (e.B > 0) {
      cases.push_back({"select_rows_" + label,
                       OpKind::select_rows,
                       {},
                       {compute({e.B, e.S, e.H}), ints({e.B}, 0, e.S)},
                       Tolerance::exact});
    }
  }
  // A piece of a table of 300 rows, one without rows among them.
  const struct {
    int64_t first, rows;
  } pieces[] = {{0, 100}, {100, 100}, {200, 100}, {299, 1}, {300, 0}, {0, 0}};
  for (const auto& piece : pieces) {
    const std::string label = fmt::format("from{}_{}", piece.first, piece.rows);
    const Operand ids = ints({3, 19}, 0, 300);
    cases.push_back({"embedding_" + label,
                     OpKind::embedding,
                     {{"first_row", piece.first}},
                     {ids, compute({piece.rows, 17})},
                     Tolerance::exact,
                     {1}});
    for (const bool acc : {false, true}) {
      cases.push_back({fmt::format("embedding_grad_{}{}", label, acc ? "_acc" : ""),
                       OpKind::embedding_grad,
                       {{"rows", piece.rows}, {"first_row", piece.first}},
                       {ids, compute({3, 19, 17}), acc ? param({piece.rows, 17}) : absent()}});
    }
  }
  // Every position the same id: the longest sum that can meet one row.
  cases.push_back({"embedding_grad_one_id",
                   OpKind::embedding_grad,
                   {{"rows", int64_t{4}}},
                   {ints({4, 64}, 2, 3), compute({4, 64, 9}), absent()}});
  return cases;
}

}  // namespace weft::test
