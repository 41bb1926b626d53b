// Mixture of experts: router, its gradient, and what runs on rows of experts. Legend: B sequences,
// S positions, H hidden, E experts, K experts per token, I width of an expert, C capacity.
#include <fmt/core.h>

#include "tests/cases/cases.h"
#include "weft/ops/ops.h"

namespace weft::test {
namespace {

/// How tokens are routed. Slots and counts of every case come from the router itself.
struct Routing {
  std::string label;
  int64_t B, S, H, E, K;
  std::vector<double> lengths;
  std::string score = "softmax";
  bool normalize = true;
  double scale = 1;
  int64_t capacity = 0;
  int64_t groups = 1, top_groups = 1;
  bool bias = false;
  double spread = 0.5;  // of the router's weight; 0: every expert ties

  Attrs attrs() const {
    Attrs attrs = {{"top_k", K},
                   {"score", score},
                   {"normalize", normalize},
                   {"scale", scale},
                   {"capacity", capacity}};
    if (groups > 1) {
      attrs.set("groups", groups);
      attrs.set("top_groups", top_groups);
    }
    return attrs;
  }
  Operand x() const { return compute({B, S, H}); }
  Operand w() const { return param({E, H}, spread); }
  Operand length_list() const { return i32_list({B}, lengths); }
  Operand selection_bias() const { return bias ? param({E}, 0.3) : absent(); }
  Shape rows(int64_t width) const {
    return capacity > 0 ? Shape{E, B, capacity, width} : Shape{B, S * K, width};
  }
};

const std::vector<Routing>& routings() {
  static const std::vector<Routing> list = {
      {"softmax", 2, 5, 8, 4, 2, {5, 3}, "softmax", false},
      {"normalized", 3, 7, 17, 8, 2, {7, 0, 4}},
      {"top1", 2, 6, 9, 3, 1, {6, 5}, "softmax", false},
      {"top1_normalized", 1, 6, 9, 3, 1, {5}},
      {"all_experts", 2, 4, 8, 4, 4, {4, 1}},
      {"one_expert", 1, 3, 7, 1, 1, {2}},
      {"ties", 2, 5, 8, 4, 2, {5, 4}, "softmax", true, 1, 0, 1, 1, false, 0},
      {"capacity", 2, 9, 8, 4, 2, {9, 7}, "softmax", true, 1, 3},
      {"capacity_short", 3, 6, 16, 5, 2, {6, 0, 1}, "softmax", false, 1, 2},
      {"capacity_ties", 1, 16, 8, 4, 2, {16}, "softmax", true, 1, 8, 1, 1, false, 0},
      {"sigmoid", 2, 6, 8, 8, 3, {6, 4}, "sigmoid", true, 2.5, 0, 1, 1, true},
      {"sigmoid_plain", 2, 6, 8, 8, 3, {6, 2}, "sigmoid", false, 1, 0, 1, 1, false},
      {"groups", 2, 8, 16, 8, 2, {8, 5}, "sigmoid", true, 2.5, 0, 4, 2, true},
      {"groups_of_one", 1, 5, 8, 6, 2, {5}, "sigmoid", true, 1, 3, 6, 3, true},
      {"wide", 2, 70, 33, 64, 8, {70, 65}, "softmax", true, 1, 0, 1, 1, false, 0.2},
      {"no_sequences", 0, 4, 8, 4, 2, {}},
  };
  return list;
}

void add_routers(std::vector<OpCase>& cases) {
  int variant = 0;
  for (const Routing& r : routings()) {
    const bool aux = variant % 2 == 0, acc = variant % 3 == 0, dweights = variant % 5 != 4;
    ++variant;
    OpCase forward_case{
        .name = "router_" + r.label,
        .op = OpKind::router,
        .attrs = r.attrs(),
        .inputs = {r.x(), r.w(), r.length_list(), r.selection_bias(),
                   aux ? param_list({0.5}) : absent()},
        .differentiable = r.spread > 0 ? std::vector<int>{0, 1} : std::vector<int>{},
        .output = 1};
    cases.push_back(forward_case);
    Attrs attrs = r.attrs();
    attrs.set("balance", 0.25);
    attrs.set("z_loss", 0.125);
    const Shape logits = {r.B, r.S, r.E}, chosen = {r.B, r.S, r.K};
    const std::vector<int> from = {0, 1, 2, r.bias ? 9 : -1, -1};
    OpCase grad_case{
        .name = fmt::format("router_grad_{}{}{}{}", r.label, aux ? "_aux" : "",
                            dweights ? "" : "_aux_only", acc ? "_acc" : ""),
        .op = OpKind::router_grad,
        .attrs = attrs,
        .inputs = {r.x(), r.w(), r.length_list(), aux ? param_list({0.5}) : absent(),
                   forward(Of::param, logits, OpKind::router, from, 0),
                   forward(Of::i32, chosen, OpKind::router, from, 3),
                   forward(Of::param, {r.B, r.E + kRouterStats}, OpKind::router, from, 5),
                   dweights ? param(chosen) : absent(), acc ? param({r.E, r.H}) : absent()},
        .tolerance = Tolerance::fused,
        .sources = {r.selection_bias()}};
    cases.push_back(grad_case);
  }
  for (const int apply : {1, 0}) {
    // Loads below, at and above the mean; behind them what else stats hold.
    cases.push_back(
        {fmt::format("router_bias_update_{}", apply == 1 ? "moves" : "skipped"),
         OpKind::router_bias_update,
         {{"rate", 0.001}},
         {param({5}), param_list({3, 9, 5, 5, 3, 1, 2, 3, 4}), i32_list({1}, {apply * 1.0})},
         Tolerance::exact});
  }
}

/// Cases of the operators on rows; slots and counts are those the router gives for x, w and lengths
/// of `sources`, which follow `inputs` inputs of the operator.
class RowCases {
 public:
  RowCases(const Routing& routing, int inputs) : r_(routing), first_(inputs) {}

  Operand slots() const { return routed({r_.B, r_.S, r_.K}, 2); }
  Operand counts() const { return routed({r_.B, r_.E}, 4); }
  std::vector<Operand> sources() const { return {r_.x(), r_.w(), r_.length_list()}; }

 private:
  Operand routed(Shape shape, int output) const {
    return forward(Of::i32, std::move(shape), OpKind::router,
                   {first_, first_ + 1, first_ + 2, -1, -1}, output);
  }

  const Routing& r_;
  int first_;
};

/// The experts of a piece, or all of them.
struct Experts {
  std::string label;
  int64_t first = 0, count = 0;

  Attrs on(Attrs attrs) const {
    if (count == 0) return attrs;
    attrs.set("first_expert", first);
    attrs.set("num_experts", count);
    return attrs;
  }
  int64_t of(int64_t all) const { return count == 0 ? all : count; }
};

void add_moves(std::vector<OpCase>& cases, const Routing& r, const Experts& experts) {
  const std::string label = r.label + experts.label;
  const Attrs attrs = experts.on(r.attrs());
  const Operand x = compute({r.B, r.S, r.H}), weights = param({r.B, r.S, r.K});
  for (const bool weighted : {false, true}) {
    const RowCases routed(r, 4);
    cases.push_back({.name = fmt::format("dispatch_{}{}", label, weighted ? "_weighted" : ""),
                     .op = OpKind::dispatch,
                     .attrs = attrs,
                     .inputs = {x, routed.slots(), routed.counts(), weighted ? weights : absent()},
                     .tolerance = Tolerance::elementwise,
                     .differentiable = weighted ? std::vector<int>{} : std::vector<int>{0},
                     .sources = routed.sources()});
  }
  for (const bool weighted : {false, true}) {
    for (const bool residual : {false, true}) {
      const RowCases routed(r, 5);
      std::vector<int> differentiable = {0};
      if (weighted) differentiable.push_back(3);
      if (residual) differentiable.push_back(4);
      cases.push_back({.name = fmt::format("combine_{}{}{}", label, weighted ? "_weighted" : "",
                                           residual ? "_residual" : ""),
                       .op = OpKind::combine,
                       .attrs = attrs,
                       .inputs = {compute(r.rows(r.H)), routed.slots(), routed.counts(),
                                  weighted ? weights : absent(), residual ? x : absent()},
                       .differentiable = differentiable,
                       .sources = routed.sources()});
    }
  }
  const RowCases routed(r, 4);
  cases.push_back({.name = "combine_weight_grad_" + label,
                   .op = OpKind::combine_weight_grad,
                   .attrs = attrs,
                   .inputs = {compute(r.rows(r.H)), x, routed.slots(), routed.counts()},
                   .sources = routed.sources()});
}

void add_products(std::vector<OpCase>& cases, const Routing& r, const Experts& experts, int64_t I,
                  bool acc) {
  const int64_t E = experts.of(r.E);
  for (const bool transpose : {true, false}) {
    Attrs attrs = experts.on(r.attrs());
    attrs.set("transpose_w", transpose);
    const Shape w = transpose ? Shape{E, I, r.H} : Shape{E, r.H, I};
    const std::string label = fmt::format("{}{}_{}", r.label, experts.label, transpose ? "t" : "n");
    const RowCases forward_routed(r, 3), grad_routed(r, 4);
    // The gradient is built for all experts; pieces come later.
    cases.push_back(
        {.name = "grouped_matmul_" + label,
         .op = OpKind::grouped_matmul,
         .attrs = attrs,
         .inputs = {compute(r.rows(r.H)), compute(w, 0.3), forward_routed.counts()},
         .differentiable = experts.count == 0 ? std::vector<int>{0, 1} : std::vector<int>{},
         .sources = forward_routed.sources()});
    const bool adds = acc == transpose;
    cases.push_back({.name = fmt::format("grouped_matmul_wgrad_{}{}", label, adds ? "_acc" : ""),
                     .op = OpKind::grouped_matmul_wgrad,
                     .attrs = attrs,
                     .inputs = {compute(r.rows(r.H)), compute(r.rows(I)), grad_routed.counts(),
                                adds ? param(w) : absent()},
                     .sources = grad_routed.sources()});
  }
}

void add_activations(std::vector<OpCase>& cases, const Routing& r, const Experts& experts,
                     const std::string& kind) {
  Attrs attrs = experts.on(r.attrs());
  attrs.set("kind", kind);
  const Operand rows = compute(r.rows(r.H));
  const RowCases forward_routed(r, 3), grad_routed(r, 4);
  for (const bool gated : {true, false}) {
    const std::string label =
        fmt::format("{}_{}{}{}", kind, r.label, experts.label, gated ? "" : "_ungated");
    const Operand up = gated ? rows : absent();
    std::vector<int> differentiable;
    if (experts.count == 0) differentiable = gated ? std::vector<int>{0, 1} : std::vector<int>{0};
    cases.push_back({.name = "expert_glu_" + label,
                     .op = OpKind::expert_glu,
                     .attrs = attrs,
                     .inputs = {rows, up, forward_routed.counts()},
                     .tolerance = Tolerance::elementwise,
                     .differentiable = differentiable,
                     .sources = forward_routed.sources()});
    cases.push_back({.name = "expert_glu_grad_" + label,
                     .op = OpKind::expert_glu_grad,
                     .attrs = attrs,
                     .inputs = {rows, up, rows, grad_routed.counts()},
                     .tolerance = Tolerance::elementwise,
                     .sources = grad_routed.sources()});
  }
}

/// Experts 1 and 2 of four with capacity 2: rows and counts of the piece, slots of the whole.
void add_capacity_piece(std::vector<OpCase>& cases) {
  const Attrs attrs = {
      {"capacity", int64_t{2}}, {"first_expert", int64_t{1}}, {"num_experts", int64_t{2}}};
  const Operand slots = i32_list({1, 4, 2}, {2, 6, 0, 4, 3, -1, -1, -1});
  const Operand counts = i32_list({1, 2}, {2, 1});
  const Operand x = compute({1, 4, 9}), rows = compute({2, 1, 2, 9}), weights = param({1, 4, 2});
  cases.push_back({"dispatch_capacity_piece",
                   OpKind::dispatch,
                   attrs,
                   {x, slots, counts, weights},
                   Tolerance::elementwise});
  cases.push_back(
      {"combine_capacity_piece", OpKind::combine, attrs, {rows, slots, counts, weights, x}});
  cases.push_back({"combine_weight_grad_capacity_piece",
                   OpKind::combine_weight_grad,
                   attrs,
                   {rows, x, slots, counts}});
}

}  // namespace

std::vector<OpCase> expert_cases() {
  std::vector<OpCase> cases;
  add_routers(cases);
  // Both layouts, sequences of every length, experts without tokens (of 8 or 64, of ties).
  const std::vector<Routing> rows = {
      {"softmax", 2, 5, 8, 4, 2, {5, 3}},
      {"short", 3, 7, 17, 8, 2, {7, 0, 4}},
      {"ties", 2, 5, 8, 4, 2, {5, 4}, "softmax", true, 1, 0, 1, 1, false, 0},
      {"capacity", 2, 9, 8, 4, 2, {9, 7}, "softmax", true, 1, 3},
      {"capacity_short", 3, 6, 16, 5, 2, {6, 0, 1}, "softmax", true, 1, 2},
      {"capacity_ties", 1, 16, 33, 4, 2, {16}, "softmax", true, 1, 8, 1, 1, false, 0},
      {"no_sequences", 0, 4, 8, 4, 2, {}},
  };
  const char* kinds[] = {"silu", "gelu", "gelu_tanh"};
  for (size_t i = 0; i < rows.size(); ++i) {
    add_moves(cases, rows[i], {});
    add_products(cases, rows[i], {}, i % 2 == 0 ? 9 : 24, i % 2 == 0);
    add_activations(cases, rows[i], {}, kinds[i % 3]);
  }
  for (const Experts& piece :
       {Experts{"_first", 0, 3}, Experts{"_last", 3, 5}, Experts{"_one", 2, 1}}) {
    add_moves(cases, rows[1], piece);
    add_products(cases, rows[1], piece, 9, piece.count == 3);
    add_activations(cases, rows[1], piece, "silu");
  }
  add_capacity_piece(cases);
  // More than one block of rows, of inner extent and of columns.
  const Routing many{"many", 3, 150, 41, 3, 2, {150, 150, 150}};
  const Routing deep{"deep", 2, 6, 801, 2, 1, {6, 5}, "softmax", true, 1, 0, 1, 1, false, 0.05};
  const Routing deep_capacity{
      "deep_capacity", 2, 6, 801, 2, 1, {6, 5}, "softmax", true, 1, 3, 1, 1, false, 0.05};
  add_products(cases, many, {}, 70, true);
  add_products(cases, deep, {}, 19, false);
  add_products(cases, deep_capacity, {}, 19, false);
  return cases;
}

}  // namespace weft::test
