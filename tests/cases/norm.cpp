// rmsnorm, layernorm and their gradients, whole rows and per-head groups.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

struct Extents {
  Shape rows;
  int64_t width, group;  // group = width: whole rows
  double mean = 0, deviation = 1;
};

const std::vector<Extents>& extents() {
  static const std::vector<Extents> list = {
      {{1}, 1, 1},           {{2, 3}, 7, 7},       {{5}, 8, 8},
      {{3}, 9, 9},           {{2, 2}, 17, 17},     {{70}, 64, 64},
      {{2, 3}, 12, 3},       {{2, 5}, 64, 8},      {{1, 3}, 128, 64},
      {{0, 4}, 8, 8},        {{0, 4}, 24, 8},      {{2, 3}, 0, 8},
      {{6}, 257, 257},       {{4}, 40, 40, 30, 1}, {{4}, 33, 33, 0, 1e-3},
      {{4}, 33, 33, 0, 1e3},
  };
  return list;
}

std::string label(const Extents& e) {
  std::string text;
  for (const int64_t extent : e.rows) text += fmt::format("{}x", extent);
  text += fmt::format("{}", e.width);
  if (e.group != e.width) text += fmt::format("_group{}", e.group);
  if (e.mean != 0) text += "_shifted";
  if (e.deviation < 1) text += "_small";
  if (e.deviation > 1) text += "_large";
  return text;
}

Shape with(Shape rows, int64_t last) {
  rows.push_back(last);
  return rows;
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  const Attrs attrs = {{"eps", 1e-5}};
  int variant = 0;
  for (const Extents& e : extents()) {
    const Shape shape = with(e.rows, e.width);
    const Shape groups = with(e.rows, e.width / e.group);
    const Operand x = compute(shape, e.deviation, e.mean);
    const Operand w = param({e.group}, 0.2, 1);
    const bool addend = variant % 2 == 0, acc = variant % 3 != 1;
    const std::string suffix = label(e) + (addend ? "_addend" : "") + (acc ? "_acc" : "");
    cases.push_back(
        {"rmsnorm_" + label(e), OpKind::rmsnorm, attrs, {x, w}, Tolerance::sum, {0, 1}});
    cases.push_back({"rmsnorm_grad_" + suffix,
                     OpKind::rmsnorm_grad,
                     attrs,
                     {x, w, forward(Of::param, groups, OpKind::rmsnorm, {0, 1}, 1), compute(shape),
                      addend ? compute(shape) : absent(), acc ? param({e.group}) : absent()}});
    if (e.group == e.width) {
      const Operand b = param({e.width});
      cases.push_back({"layernorm_" + label(e),
                       OpKind::layernorm,
                       attrs,
                       {x, w, b},
                       Tolerance::sum,
                       {0, 1, 2}});
      // The statistics do not depend on the bias: w stands in for it.
      cases.push_back({"layernorm_grad_" + suffix,
                       OpKind::layernorm_grad,
                       attrs,
                       {x, w, forward(Of::param, e.rows, OpKind::layernorm, {0, 1, 1}, 1),
                        forward(Of::param, e.rows, OpKind::layernorm, {0, 1, 1}, 2), compute(shape),
                        addend ? compute(shape) : absent(), acc ? param({e.width}) : absent(),
                        acc ? param({e.width}) : absent()}});
    }
    ++variant;
  }
  return cases;
}

}  // namespace weft::test
