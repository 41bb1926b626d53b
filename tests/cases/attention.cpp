// attention and attention_grad: grouped heads, windows, segments, head sizes off the vector width.
#include <fmt/core.h>

#include <cmath>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

struct Shapes {
  const char* label;
  int64_t B, S, N, G, D;
  int64_t window = 0;
  int64_t segments = 0;  // > 0: documents of about S / segments positions
  double deviation = 1;
};

const std::vector<Shapes>& shapes() {
  static const std::vector<Shapes> list = {
      {"one", 1, 1, 1, 1, 1},
      {"dim1", 1, 7, 2, 1, 1},
      {"dim2", 2, 8, 2, 2, 2},
      {"dim6", 2, 9, 6, 2, 6},
      {"dim8", 1, 17, 4, 4, 8},
      {"dim64", 2, 33, 4, 2, 64},
      {"dim80", 1, 19, 2, 1, 80},
      {"grouped", 2, 20, 6, 1, 16},
      {"long", 1, 130, 2, 1, 32},
      {"tile", 1, 128, 2, 2, 64},
      {"window1", 1, 9, 2, 1, 8, 1},
      {"window2", 1, 9, 2, 1, 8, 2},
      {"window5", 2, 37, 4, 2, 16, 5},
      {"window_long", 1, 150, 1, 1, 8, 64},
      {"window_wider", 1, 9, 2, 2, 8, 100},
      {"segments", 2, 40, 4, 2, 8, 0, 5},
      {"segments_window", 2, 70, 2, 1, 16, 6, 3},
      {"sharp", 1, 24, 2, 1, 16, 0, 0, 6},  // softmax close to one-hot
      {"no_rows", 2, 0, 2, 1, 8},
      {"no_batch", 0, 5, 2, 1, 8},
      {"no_heads", 2, 5, 0, 0, 8},
  };
  return list;
}

Operand segment_ids(const Shapes& s) {
  if (s.segments == 0) return absent();
  std::vector<double> ids;
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t i = 0; i < s.S; ++i) {
      ids.push_back(static_cast<double>((i + 3 * b) * s.segments / s.S));
    }
  }
  return i32_list({s.B, s.S}, ids);
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (const Shapes& s : shapes()) {
    const Attrs attrs = {{"head_dim", s.D},
                         {"num_heads", s.N},
                         {"num_kv_heads", s.G},
                         {"scale", 1.0 / std::sqrt(static_cast<double>(s.D))},
                         {"window", s.window}};
    const Shape q = {s.B, s.S, s.N * s.D}, kv = {s.B, s.S, s.G * s.D};
    const std::vector<Operand> inputs = {compute(q, s.deviation), compute(kv), compute(kv),
                                         segment_ids(s)};
    cases.push_back({fmt::format("attention_{}", s.label),
                     OpKind::attention,
                     attrs,
                     inputs,
                     Tolerance::fused,
                     {0, 1, 2}});
    // Seeing only itself, a query has gradients that are 0 by exact cancellation: nothing to
    // compare roundings with.
    if (s.window == 1) continue;
    std::vector<Operand> grad_inputs = inputs;
    grad_inputs.push_back(forward(Of::compute, q, OpKind::attention, {0, 1, 2, 3}, 0));
    grad_inputs.push_back(forward(Of::param, {s.B, s.N, s.S}, OpKind::attention, {0, 1, 2, 3}, 1));
    grad_inputs.push_back(compute(q));
    cases.push_back({fmt::format("attention_grad_{}", s.label), OpKind::attention_grad, attrs,
                     grad_inputs, Tolerance::fused});
  }
  return cases;
}

}  // namespace weft::test
