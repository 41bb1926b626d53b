// dispatch: tokens to the rows of their experts; combine: back, as a weighted sum. Each is the
// gradient of the other; combine_weight_grad is that of the weights.
#include "weft/ops/expert_rows.h"

namespace weft {
namespace {

std::string optional(const TensorType& type, std::string_view letters) {
  return type.present() ? std::string(letters) : "_";
}

std::vector<TensorType> infer_dispatch(Types in, const Attrs& attrs) {
  check_count("dispatch", in, 4);
  check_rank("dispatch", "x", in[0], 3);
  const int64_t B = in[0].shape[0], S = in[0].shape[1], H = in[0].shape[2];
  check_rank("dispatch", "slots", in[1], 3);
  const int64_t K = in[1].shape[2];
  check_type("dispatch", "slots", in[1], {DType::i32, {B, S, K}});
  check_rank("dispatch", "counts", in[2], 2);
  check_optional("dispatch", "weights", in[3], {param_dtype(in[0].dtype), {B, S, K}});
  const int64_t capacity = attrs.get_int("capacity", 0);
  TensorType rows{in[0].dtype, {B, S * K, H}};
  if (capacity > 0) rows.shape = {in[2].shape[1], B, capacity, H};
  check_rows("dispatch", "rows", rows, in[2]);
  return {rows};
}

ShardingRule rule_dispatch(Types in, Types out, const Attrs&) {
  ShardingRule rule = make_rule(fmt::format("bsh,bsk,{},{}->{}", count_letters(out[0]),
                                            optional(in[3], "bsk"), row_letters(out[0], 'h')),
                                in, out, "", "skcr");
  add_expert_factor(rule, out[0], in[2].shape[1], {});
  return rule;
}

std::vector<ValueId> grad_dispatch(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  WEFT_OP_CHECK(node.inputs[3] == kNoValue, "dispatch", "a weighted one has no gradient");
  const ValueId dx = graph.add(
      OpKind::combine, {dy[0], node.inputs[1], node.inputs[2], kNoValue, kNoValue}, node.attrs);
  return {dx, kNoValue, kNoValue, kNoValue};
}

std::vector<TensorType> infer_combine(Types in, const Attrs&) {
  check_count("combine", in, 5);
  check_rows("combine", "rows", in[0], in[2]);
  check_rank("combine", "slots", in[1], 3);
  const Shape& slots = in[1].shape;
  check_optional("combine", "weights", in[3], {param_dtype(in[0].dtype), slots});
  TensorType y{in[0].dtype, {slots[0], slots[1], row_width(in[0])}};
  WEFT_OP_CHECK(has_capacity(in[0]) || in[0].shape[1] == slots[1] * slots[2], "combine",
                "got rows {} and slots {}", shape_text(in[0].shape), shape_text(slots));
  check_optional("combine", "residual", in[4], y);
  return {y};
}

ShardingRule rule_combine(Types in, Types out, const Attrs&) {
  const bool capacity = has_capacity(in[0]);
  ShardingRule rule =
      make_rule(fmt::format("{},bsk,{},{},{}->bsh", row_letters(in[0], 'h'), count_letters(in[0]),
                            optional(in[3], "bsk"), optional(in[4], "bsh")),
                in, out, "e", capacity ? "skc" : "skr");
  rule.linear = true;
  rule.linear_inputs = {0};
  rule.addends = {4};
  return rule;
}

std::vector<ValueId> grad_combine(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const ValueId rows = node.inputs[0], slots = node.inputs[1], counts = node.inputs[2],
                weights = node.inputs[3];
  const ValueId drows = graph.add(OpKind::dispatch, {dy[0], slots, counts, weights}, node.attrs);
  const ValueId dweights =
      weights == kNoValue
          ? kNoValue
          : graph.add(OpKind::combine_weight_grad, {rows, dy[0], slots, counts}, node.attrs);
  return {drows, kNoValue, kNoValue, dweights, node.inputs[4] == kNoValue ? kNoValue : dy[0]};
}

std::vector<TensorType> infer_weight_grad(Types in, const Attrs&) {
  check_count("combine_weight_grad", in, 4);
  check_rows("combine_weight_grad", "rows", in[0], in[3]);
  check_rank("combine_weight_grad", "slots", in[2], 3);
  const Shape& slots = in[2].shape;
  check_type("combine_weight_grad", "dy", in[1],
             {in[0].dtype, {slots[0], slots[1], row_width(in[0])}});
  return {{param_dtype(in[0].dtype), slots}};
}

ShardingRule rule_weight_grad(Types in, Types out, const Attrs&) {
  const bool capacity = has_capacity(in[0]);
  ShardingRule rule =
      make_rule(fmt::format("{},bsh,bsk,{}->bsk", row_letters(in[0], 'h'), count_letters(in[0])),
                in, out, "eh", capacity ? "skc" : "skr");
  rule.linear = true;
  rule.linear_inputs = {0};
  return rule;
}

template <int kFlops>
OpCost cost_rows(Types in, Types out, const Attrs&) {
  return stream_cost(in, out, kFlops);
}

}  // namespace

const OpDef& dispatch_op() {
  static const OpDef def = {.name = "dispatch",
                            .inputs = {"x", "slots", "counts", "weights?"},
                            .outputs = {"rows"},
                            .infer = infer_dispatch,
                            .grad = grad_dispatch,
                            .cost = cost_rows<1>,
                            .rule = rule_dispatch,
                            .localize = localize_experts};
  return def;
}

const OpDef& combine_op() {
  static const OpDef def = {.name = "combine",
                            .inputs = {"rows", "slots", "counts", "weights?", "residual?"},
                            .outputs = {"y"},
                            .infer = infer_combine,
                            .grad = grad_combine,
                            .cost = cost_rows<2>,
                            .rule = rule_combine,
                            .addends = {{4, 0}},
                            .localize = localize_experts};
  return def;
}

const OpDef& combine_weight_grad_op() {
  static const OpDef def = {.name = "combine_weight_grad",
                            .inputs = {"rows", "dy", "slots", "counts"},
                            .outputs = {"dweights"},
                            .infer = infer_weight_grad,
                            .no_grad = "second derivatives are not supported",
                            .cost = cost_rows<2>,
                            .rule = rule_weight_grad,
                            .localize = localize_experts};
  return def;
}

}  // namespace weft
