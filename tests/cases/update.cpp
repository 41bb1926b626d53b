// sum_squares, verdict, adamw, sgd. Updates are compared bit by bit.
#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

Operand apply_flag(int value) { return i32_list({1}, {static_cast<double>(value)}); }

/// lr and the bias corrections of step t.
Operand hyper(double lr, double t) {
  return param_list({lr, 1 - std::pow(0.9, t), 1 - std::pow(0.95, t)});
}

/// A second moment: positive.
Operand second_moment(const Shape& shape) { return param(shape, 1e-4, 1e-2); }

std::string copy_label(std::string_view copy) {
  return copy == "none" ? "" : fmt::format("_{}_copy", copy);
}

void add_adamw(std::vector<OpCase>& cases) {
  const Shape shapes[] = {{1}, {7}, {8}, {15}, {16}, {17}, {1023}, {3, 5}, {0}};
  for (const Shape& shape : shapes) {
    for (const char* copy : {"none", "bf16", "f16"}) {
      for (const int apply : {1, 0}) {
        const double eps = shape[0] % 2 == 1 ? 1e-8 : 1e-15;
        const Attrs attrs = {{"beta1", 0.9},
                             {"beta2", 0.95},
                             {"eps", eps},
                             {"weight_decay", shape[0] % 3 == 0 ? 0.0 : 0.1},
                             {"copy_dtype", std::string(copy)}};
        cases.push_back({fmt::format("adamw_{}_{}{}{}", num_elements(shape), shape.size(),
                                     copy_label(copy), apply == 1 ? "" : "_skipped"),
                         OpKind::adamw,
                         attrs,
                         {param(shape), param(shape, 0.1), second_moment(shape), param(shape),
                          hyper(3e-4, 7), param_list({0.37}), apply_flag(apply)},
                         Tolerance::exact});
      }
    }
  }
}

void add_sgd(std::vector<OpCase>& cases) {
  const Shape shapes[] = {{1}, {7}, {8}, {17}, {1023}, {0}};
  for (const Shape& shape : shapes) {
    for (const bool momentum : {false, true}) {
      for (const char* copy : {"none", "bf16", "f16"}) {
        for (const int apply : {1, 0}) {
          cases.push_back({fmt::format("sgd_{}{}{}{}", shape[0], momentum ? "_momentum" : "",
                                       copy_label(copy), apply == 1 ? "" : "_skipped"),
                           OpKind::sgd,
                           {{"momentum", momentum ? 0.9 : 0.0},
                            {"weight_decay", 0.01},
                            {"copy_dtype", std::string(copy)}},
                           {param(shape), param(shape), momentum ? param(shape) : absent(),
                            hyper(0.05, 3), param_list({0.37}), apply_flag(apply)},
                           Tolerance::exact});
        }
      }
    }
  }
}

/// Moments in 16 bits, of a whole tensor and of pieces of larger ones.
void add_rounded(std::vector<OpCase>& cases) {
  const struct {
    Shape shape;
    const char* elements;
  } pieces[] = {{{1}, "1;0;1;0"},          {{7}, "9;2;7;0"},       {{1023}, "1023;0;1023;0"},
                {{3, 5}, "4,9;1,2;3,5;0"}, {{9}, "4,9;1,2;3,5;3"}, {{0}, "8;0;0;0"}};
  for (const auto& [shape, elements] : pieces) {
    for (const char* copy : {"none", "bf16", "f16"}) {
      for (const int apply : {1, 0}) {
        const std::string label =
            fmt::format("rounded_{}_{}{}{}", num_elements(shape), shape.size(), copy_label(copy),
                        apply == 1 ? "" : "_skipped");
        const Attrs draws = {{"seed", int64_t{11}},
                             {"site", int64_t{-5}},
                             {"elements", std::string(elements)},
                             {"copy_dtype", std::string(copy)},
                             {"weight_decay", 0.1}};
        Attrs adamw = draws, sgd = draws;
        adamw.set("beta1", 0.9);
        adamw.set("beta2", 0.95);
        adamw.set("eps", 1e-8);
        sgd.set("momentum", 0.9);
        cases.push_back({"adamw_" + label,
                         OpKind::adamw,
                         adamw,
                         {param(shape), slot(shape, 0.1), slot(shape, 1e-4, 1e-2), param(shape),
                          hyper(3e-4, 7), param_list({0.37}), apply_flag(apply), i64_list({7})},
                         Tolerance::exact});
        cases.push_back({"sgd_" + label,
                         OpKind::sgd,
                         sgd,
                         {param(shape), param(shape), slot(shape), hyper(0.05, 3),
                          param_list({0.37}), apply_flag(apply), i64_list({3})},
                         Tolerance::exact});
      }
    }
  }
}

}  // namespace

std::vector<OpCase> update_cases() {
  std::vector<OpCase> cases;
  const Shape shapes[] = {{1}, {7}, {8}, {9}, {3, 17}, {1023}, {70, 130}, {0}};
  for (const Shape& shape : shapes) {
    const std::string label = fmt::format("{}_{}", shape.size(), num_elements(shape));
    cases.push_back({"sum_squares_" + label, OpKind::sum_squares, {}, {compute(shape)}});
    cases.push_back({"sum_squares_param_" + label, OpKind::sum_squares, {}, {param(shape, 1e3)}});
  }
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    const char* label;
    double max_norm;
    double inv_scale;
    std::vector<double> sums;
  } verdicts[] = {
      {"off", 0, 1, {25}},
      {"clipped", 1, 1, {9, 16}},
      {"inside", 10, 1, {9, 16}},
      {"unscaled", 1, 1.0 / 65536, {9e9, 16e9, 0}},
      {"zero", 1, 1, {0, 0}},
      {"infinite", 1, 1, {3, inf}},
      {"nan", 1, 1, {3, std::nan("")}},
      {"huge", 1, 1, {1e60, 4e60}},
      {"tiny", 1, 1, {1e-60}},
  };
  for (const auto& v : verdicts) {
    std::vector<Operand> inputs = {param_list({v.inv_scale})};
    for (const double sum : v.sums) inputs.push_back(f64_list({sum}));
    cases.push_back({fmt::format("verdict_{}", v.label),
                     OpKind::verdict,
                     {{"max_norm", v.max_norm}},
                     inputs,
                     Tolerance::elementwise});
  }
  add_adamw(cases);
  add_sgd(cases);
  add_rounded(cases);
  return cases;
}

}  // namespace weft::test
