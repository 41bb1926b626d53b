// matmul and the gradients of its weight and bias.
#include "weft/ops/ops.h"

namespace weft {
namespace {

bool transposed(const Attrs& attrs) { return attrs.get_bool("transpose_w", true); }

/// Extents (inner, outer) of a weight.
std::pair<int64_t, int64_t> weight_extents(const TensorType& w, bool transpose) {
  return transpose ? std::pair{w.shape[1], w.shape[0]} : std::pair{w.shape[0], w.shape[1]};
}

std::vector<TensorType> infer_matmul(Types in, const Attrs& attrs) {
  check_count("matmul", in, 4);
  const TensorType& x = in[0];
  const TensorType& w = in[1];
  check_rank("matmul", "w", w, 2);
  const auto [inner, outer] = weight_extents(w, transposed(attrs));
  WEFT_OP_CHECK(!x.shape.empty() && x.shape.back() == inner && x.dtype == w.dtype, "matmul",
                "got x {}{} and w {}{}", dtype_name(x.dtype), shape_text(x.shape),
                dtype_name(w.dtype), shape_text(w.shape));
  TensorType y{x.dtype, x.shape};
  y.shape.back() = outer;
  check_optional("matmul", "bias", in[2], {param_dtype(x.dtype), {outer}});
  check_optional("matmul", "residual", in[3], y);
  return {y};
}

OpCost cost_matmul(Types in, Types out, const Attrs&) {
  OpCost cost = stream_cost(in, out, 0);
  cost.flops =
      2.0 * static_cast<double>(in[0].elements()) * static_cast<double>(out[0].shape.back());
  return cost;
}

ShardingRule rule_matmul(Types in, Types out, const Attrs& attrs) {
  const std::string x = leading(in[0], "h");
  const std::string y = leading(out[0], "f");
  ShardingRule rule =
      make_rule(fmt::format("{},{},{},{}->{}", x, transposed(attrs) ? "fh" : "hf",
                            in[2].present() ? "f" : "_", in[3].present() ? y : "_", y),
                in, out, "h");
  rule.addends = {2, 3};
  return rule;
}

std::vector<ValueId> grad_matmul(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const bool transpose = transposed(node.attrs);
  const ValueId dx = graph.add(OpKind::matmul, {dy[0], node.inputs[1], kNoValue, kNoValue},
                               {{"transpose_w", !transpose}});
  const ValueId dw = graph.add(OpKind::matmul_wgrad, {node.inputs[0], dy[0], kNoValue},
                               {{"transpose_w", transpose}});
  const ValueId db =
      node.inputs[2] == kNoValue ? kNoValue : graph.add(OpKind::bias_grad, {dy[0], kNoValue});
  return {dx, dw, db, node.inputs[3] == kNoValue ? kNoValue : dy[0]};
}

std::vector<TensorType> infer_wgrad(Types in, const Attrs& attrs) {
  check_count("matmul_wgrad", in, 3);
  WEFT_OP_CHECK(in[0].dtype == in[1].dtype && num_rows(in[0].shape) == num_rows(in[1].shape),
                "matmul_wgrad", "got x {} and dy {}", shape_text(in[0].shape),
                shape_text(in[1].shape));
  const int64_t inner = in[0].shape.back();
  const int64_t outer = in[1].shape.back();
  TensorType dw{param_dtype(in[0].dtype),
                transposed(attrs) ? Shape{outer, inner} : Shape{inner, outer}};
  check_optional("matmul_wgrad", "acc", in[2], dw);
  return {dw};
}

OpCost cost_wgrad(Types in, Types out, const Attrs&) {
  OpCost cost = stream_cost(in, out, 0);
  cost.flops =
      2.0 * static_cast<double>(in[0].elements()) * static_cast<double>(in[1].shape.back());
  return cost;
}

ShardingRule rule_wgrad(Types in, Types out, const Attrs& attrs) {
  const std::string_view w = transposed(attrs) ? "fh" : "hf";
  const std::string x = leading(in[0], "h");
  ShardingRule rule =
      make_rule(fmt::format("{},{},{}->{}", x, leading(in[1], "f"), in[2].present() ? w : "_", w),
                in, out, x.substr(0, x.size() - 1));
  rule.addends = {2};
  return rule;
}

std::vector<TensorType> infer_bias_grad(Types in, const Attrs&) {
  check_count("bias_grad", in, 2);
  TensorType db{param_dtype(in[0].dtype), {in[0].shape.back()}};
  check_optional("bias_grad", "acc", in[1], db);
  return {db};
}

ShardingRule rule_bias_grad(Types in, Types out, const Attrs&) {
  const std::string dy = leading(in[0], "f");
  ShardingRule rule = make_rule(fmt::format("{},{}->f", dy, in[1].present() ? "f" : "_"), in, out,
                                dy.substr(0, dy.size() - 1));
  rule.addends = {1};
  return rule;
}

}  // namespace

const OpDef& matmul_op() {
  static const OpDef def = {.name = "matmul",
                            .inputs = {"x", "w", "bias?", "residual?"},
                            .outputs = {"y"},
                            .infer = infer_matmul,
                            .grad = grad_matmul,
                            .cost = cost_matmul,
                            .rule = rule_matmul,
                            .addends = {{3, 0}},
                            .matmul_like = true};
  return def;
}

const OpDef& matmul_wgrad_op() {
  static const OpDef def = {.name = "matmul_wgrad",
                            .inputs = {"x", "dy", "acc?"},
                            .outputs = {"dw"},
                            .infer = infer_wgrad,
                            .no_grad = "second derivatives are not supported",
                            .cost = cost_wgrad,
                            .rule = rule_wgrad,
                            .addends = {{2, 0}},
                            .matmul_like = true};
  return def;
}

const OpDef& bias_grad_op() {
  static const OpDef def = {
      .name = "bias_grad",
      .inputs = {"dy", "acc?"},
      .outputs = {"db"},
      .infer = infer_bias_grad,
      .no_grad = "second derivatives are not supported",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 1); },
      .rule = rule_bias_grad,
      .addends = {{1, 0}}};
  return def;
}

}  // namespace weft
