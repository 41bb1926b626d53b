// cross_entropy, its gradient, and the forms fused with the projection.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

enum class Labels { all, some, none };

/// B x S labels below V; of `some` every third is ignored.
Operand labels(int64_t B, int64_t S, int64_t V, Labels which) {
  std::vector<double> values;
  for (int64_t i = 0; i < B * S; ++i) {
    const bool ignored = which == Labels::none || (which == Labels::some && i % 3 == 1);
    values.push_back(ignored ? -100.0 : static_cast<double>((i * 7919 + 3) % V));
  }
  return i32_list({B, S}, values);
}

const char* label_of(Labels which) {
  return which == Labels::all ? "" : which == Labels::some ? "_some_ignored" : "_all_ignored";
}

struct Extents {
  int64_t B, S, V, H, chunk_rows;
  Labels which;
  double mean = 0, deviation = 1;
};

const std::vector<Extents>& extents() {
  static const std::vector<Extents> list = {
      {1, 1, 1, 1, 1, Labels::all},
      {1, 1, 2, 3, 4, Labels::all},
      {2, 3, 7, 8, 2, Labels::some},
      {2, 4, 9, 17, 3, Labels::none},
      {3, 5, 257, 9, 4, Labels::some},
      {2, 17, 257, 33, 8, Labels::all},
      {1, 40, 1000, 64, 16, Labels::some},
      {0, 3, 8, 8, 4, Labels::all},
      {2, 3, 257, 7, 100, Labels::all, 100, 10},
  };
  return list;
}

}  // namespace

std::vector<OpCase> loss_cases() {
  std::vector<OpCase> cases;
  for (const Extents& e : extents()) {
    const std::string label = fmt::format("{}x{}x{}{}{}", e.B, e.S, e.V, label_of(e.which),
                                          e.deviation > 1 ? "_large" : "");
    const Operand logits = compute({e.B, e.S, e.V}, e.deviation, e.mean);
    const Operand classes = labels(e.B, e.S, e.V, e.which);
    cases.push_back({"cross_entropy_" + label,
                     OpKind::cross_entropy,
                     {},
                     {logits, classes},
                     Tolerance::sum,
                     {0}});
    cases.push_back(
        {"cross_entropy_grad_" + label,
         OpKind::cross_entropy_grad,
         {},
         {logits, classes, forward(Of::param, {e.B, e.S}, OpKind::cross_entropy, {0, 1}, 1),
          param_list({0.25})}});
    for (const bool transpose : {true, false}) {
      const Attrs attrs = {{"transpose_w", transpose}, {"chunk_rows", e.chunk_rows}};
      const Shape shape = transpose ? Shape{e.V, e.H} : Shape{e.H, e.V};
      const std::string name = fmt::format("{}_{}", label, transpose ? "t" : "n");
      const Operand x = compute({e.B, e.S, e.H}, e.deviation), w = compute(shape, 0.5);
      cases.push_back({"linear_cross_entropy_" + name,
                       OpKind::linear_cross_entropy,
                       attrs,
                       {x, w, classes},
                       Tolerance::fused});
      const bool acc = transpose == (e.chunk_rows % 2 == 0);
      cases.push_back({fmt::format("linear_cross_entropy_train_{}{}", name, acc ? "_acc" : ""),
                       OpKind::linear_cross_entropy_train,
                       attrs,
                       {x, w, classes, param_list({0.25}), acc ? param(shape) : absent()},
                       Tolerance::fused,
                       acc ? std::vector<int>{} : std::vector<int>{0, 1},
                       acc ? -1 : 3});
    }
  }
  return cases;
}

}  // namespace weft::test
