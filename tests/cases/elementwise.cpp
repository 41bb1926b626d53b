// add, cast, activation, glu, dropout and gradients.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> list = {{1},        {7},    {8},        {9},    {15},     {2, 17},
                                          {3, 1, 33}, {0, 4}, {2, 3, 64}, {1023}, {2, 3, 0}};
  return list;
}

std::string label(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

/// Where naive formulas overflow, cancel or lose their sign.
Operand extremes() {
  Operand operand = compute({16});
  operand.fill.kind = Fill::Kind::list;
  operand.fill.values = {-30000, -1000, -100, -20, -10, -5, -0.5, -1e-3,
                         0,      1e-3,  0.5,  5,   10,  20, 100,  30000};
  return operand;
}

Attrs dropout_attrs(double p, int64_t seed, int64_t site) {
  return {{"p", p}, {"seed", seed}, {"site", site}};
}

void add_dropout(std::vector<OpCase>& cases) {
  const struct {
    int64_t B, S, H;
    double p;
    bool residual;
    int64_t first_position = 0, first_feature = 0;
  } list[] = {
      {1, 1, 1, 0.5, false},        {2, 3, 4, 0.0, false},         {2, 3, 7, 0.1, true},
      {1, 5, 8, 0.5, true},         {3, 2, 17, 0.3, false},        {2, 9, 33, 0.9, true},
      {2, 16, 64, 0.1, true},       {2, 0, 8, 0.1, false},         {2, 3, 0, 0.1, false},
      {2, 5, 67, 0.5, false, 3, 0}, {2, 3, 67, 0.5, true, 0, 1},   {1, 2, 130, 0.3, false, 7, 62},
      {2, 2, 5, 0.5, true, 1, 3},   {1, 4, 64, 0.5, false, 0, 128}};
  for (const auto& e : list) {
    std::vector<double> samples;
    for (int64_t b = 0; b < e.B; ++b) samples.push_back(1e10 + 977 * static_cast<double>(b));
    std::vector<int> differentiable = {0};
    if (e.residual) differentiable.push_back(3);
    const Shape shape = {e.B, e.S, e.H};
    Attrs attrs = dropout_attrs(e.p, 1234, 5);
    std::string piece;
    if (e.first_position != 0 || e.first_feature != 0) {
      attrs.set("first_position", e.first_position);
      attrs.set("first_feature", e.first_feature);
      piece = fmt::format("_from{}x{}", e.first_position, e.first_feature);
    }
    cases.push_back(
        {fmt::format("dropout_{}x{}x{}_p{}{}{}", e.B, e.S, e.H, static_cast<int>(e.p * 100),
                     e.residual ? "_residual" : "", piece),
         OpKind::dropout,
         attrs,
         {compute(shape), i64_list({3}), i64_list(samples), e.residual ? compute(shape) : absent()},
         Tolerance::elementwise,
         differentiable});
  }
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : shapes()) {
    cases.push_back({"add_" + label(shape),
                     OpKind::add,
                     {},
                     {compute(shape), compute(shape)},
                     Tolerance::exact,
                     {0, 1}});
    for (const char* dtype : {"f32", "bf16", "f16", "f64"}) {
      const bool smooth = std::string(dtype) == "f64";  // others round, which differences see
      cases.push_back({fmt::format("cast_{}_{}", label(shape), dtype),
                       OpKind::cast,
                       {{"dtype", std::string(dtype)}},
                       {compute(shape)},
                       Tolerance::exact,
                       smooth ? std::vector<int>{0} : std::vector<int>{}});
    }
  }
  for (const char* kind : {"silu", "gelu", "gelu_tanh"}) {
    const Attrs attrs = {{"kind", std::string(kind)}};
    const auto name = [&](const char* op, const std::string& tail) {
      return fmt::format("{}_{}_{}", op, kind, tail);
    };
    const Tolerance close = Tolerance::sum;  // the tails of erf and tanh cancel in f32
    for (const Shape& shape : shapes()) {
      const Operand x = compute(shape, 2);
      const std::string tail = label(shape);
      cases.push_back({name("activation", tail), OpKind::activation, attrs, {x}, close, {0}});
      cases.push_back(
          {name("activation_grad", tail), OpKind::activation_grad, attrs, {x, x}, close});
      cases.push_back({name("glu", tail), OpKind::glu, attrs, {x, x}, close, {0, 1}});
      cases.push_back({name("glu_grad", tail), OpKind::glu_grad, attrs, {x, x, x}, close});
    }
    const Operand x = extremes(), y = compute({16});
    cases.push_back({name("activation", "extremes"), OpKind::activation, attrs, {x}, close});
    cases.push_back(
        {name("activation_grad", "extremes"), OpKind::activation_grad, attrs, {x, y}, close});
    cases.push_back({name("glu", "extremes"), OpKind::glu, attrs, {x, y}, close});
    cases.push_back({name("glu_grad", "extremes"), OpKind::glu_grad, attrs, {x, y, y}, close});
  }
  add_dropout(cases);
  return cases;
}

}  // namespace weft::test
