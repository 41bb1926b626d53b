// The stages of cross entropy, and what a piece of the vocabulary gives.
#include <fmt/core.h>

#include <limits>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

struct Extents {
  int64_t B, S, V;
  int64_t vocab, first;  // columns [first, first + V) of vocab; V = vocab: no piece
  double mean = 0, deviation = 1;
};

const std::vector<Extents>& extents() {
  static const std::vector<Extents> list = {
      {1, 1, 1, 1, 0},
      {2, 3, 7, 7, 0},
      {1, 5, 8, 8, 0},
      {2, 9, 257, 257, 0},
      {1, 3, 5000, 5000, 0},
      {0, 3, 8, 8, 0},
      {2, 3, 33, 33, 0, 100, 10},
      {2, 7, 5, 15, 0},
      {2, 7, 5, 15, 5},
      {2, 7, 5, 15, 10},
      {3, 11, 64, 200, 136},
      {2, 5, 0, 9, 9},
      {2, 5, 0, 9, 0},
      {1, 30, 17, 33, 16, -50, 3},
      {0, 2, 4, 12, 4},
  };
  return list;
}

/// Labels over the whole vocabulary, and the first and last column of the piece among them.
Operand labels(const Extents& e) {
  std::vector<double> values;
  for (int64_t i = 0; i < e.B * e.S; ++i) {
    int64_t label = (i * 7919 + 3) % e.vocab;
    if (i == 2 && e.V > 0) label = e.first;
    if (i == 3 && e.V > 0) label = e.first + e.V - 1;
    values.push_back(i % 5 == 1 ? -100.0 : static_cast<double>(label));
  }
  return i32_list({e.B, e.S}, values);
}

}  // namespace

std::vector<OpCase> vocab_loss_cases() {
  std::vector<OpCase> cases;
  for (const Extents& e : extents()) {
    const bool piece = e.V != e.vocab;
    const std::string label =
        fmt::format("{}x{}x{}{}{}", e.B, e.S, e.V, e.mean != 0 ? "_shifted" : "",
                    piece ? fmt::format("_from{}", e.first) : "");
    const Attrs attrs = piece ? Attrs{{"first_column", e.first}} : Attrs{};
    const Operand logits = compute({e.B, e.S, e.V}, e.deviation, e.mean);
    cases.push_back({"row_lse_" + label, OpKind::row_lse, {}, {logits}});
    cases.push_back({"pick_logits_" + label,
                     OpKind::pick_logits,
                     attrs,
                     {logits, labels(e)},
                     Tolerance::exact});
    if (piece) {
      // The log sum exp of the whole row is larger than that of the piece.
      cases.push_back(
          {"cross_entropy_grad_" + label,
           OpKind::cross_entropy_grad,
           attrs,
           {logits, labels(e), param({e.B, e.S}, 0.3, e.mean + 7), param_list({0.25})}});
    }
    cases.push_back({"token_loss_" + label,
                     OpKind::token_loss,
                     {},
                     {param({e.B, e.S}, 1, 9), param({e.B, e.S}), labels(e)}});
  }
  // No column here is possible: log 0, not NaN.
  const double none = -std::numeric_limits<double>::infinity();
  Operand masked = compute({1, 2, 9});
  masked.fill.kind = Fill::Kind::list;
  masked.fill.values.assign(18, none);
  for (const int at : {9, 13, 17}) masked.fill.values[static_cast<size_t>(at)] = 0.5;
  cases.push_back({"row_lse_masked", OpKind::row_lse, {}, {masked}});
  return cases;
}

}  // namespace weft::test
