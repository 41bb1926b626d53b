// Matmuls of rows with the weight of their expert, the gradient of those weights, and the
// activation between them: act(gate) x up, or act(gate) in experts without a gate. Rows that belong
// to no token are not computed and are zero.
#include "weft/ops/expert_rows.h"

namespace weft {
namespace {

bool transposed(const Attrs& attrs) { return attrs.get_bool("transpose_w", true); }

/// 2 x rows x inner x outer over the rows of the experts that are here.
double product_flops(const TensorType& rows, const TensorType& counts, const Attrs& attrs,
                     int64_t other_width) {
  return 2.0 * static_cast<double>(rows.elements()) * static_cast<double>(other_width) *
         expert_share(attrs, rows, counts);
}

std::vector<TensorType> infer_grouped(Types in, const Attrs& attrs) {
  check_count("grouped_matmul", in, 3);
  const TensorType& rows = in[0];
  const TensorType& w = in[1];
  check_rank("grouped_matmul", "w", w, 3);
  check_rows("grouped_matmul", "rows", rows, in[2]);
  const int64_t inner = transposed(attrs) ? w.shape[2] : w.shape[1];
  const int64_t experts = attrs.get_int("num_experts", in[2].shape[1]);
  WEFT_OP_CHECK(rows.dtype == w.dtype && row_width(rows) == inner &&
                    (has_capacity(rows) ? w.shape[0] == rows.shape[0] : w.shape[0] == experts),
                "grouped_matmul", "got rows {}{} and w {}{} of {} experts", dtype_name(rows.dtype),
                shape_text(rows.shape), dtype_name(w.dtype), shape_text(w.shape), experts);
  TensorType y = rows;
  y.shape.back() = transposed(attrs) ? w.shape[1] : w.shape[2];
  return {y};
}

ShardingRule rule_grouped(Types in, Types out, const Attrs& attrs) {
  const bool capacity = has_capacity(in[0]);
  ShardingRule rule = make_rule(
      fmt::format("{},{},{}->{}", row_letters(in[0], 'h'), transposed(attrs) ? "efh" : "ehf",
                  count_letters(in[0]), row_letters(out[0], 'f')),
      in, out, capacity ? "h" : "eh", capacity ? "c" : "r");
  add_expert_factor(rule, in[0], in[2].shape[1], {0});
  return rule;
}

std::vector<ValueId> grad_grouped(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const bool transpose = transposed(node.attrs);
  const ValueId drows = graph.add(OpKind::grouped_matmul, {dy[0], node.inputs[1], node.inputs[2]},
                                  {{"transpose_w", !transpose}});
  const ValueId dw =
      graph.add(OpKind::grouped_matmul_wgrad, {node.inputs[0], dy[0], node.inputs[2], kNoValue},
                {{"transpose_w", transpose}});
  return {drows, dw, kNoValue};
}

std::vector<TensorType> infer_grouped_wgrad(Types in, const Attrs& attrs) {
  check_count("grouped_matmul_wgrad", in, 4);
  check_rows("grouped_matmul_wgrad", "rows", in[0], in[2]);
  TensorType expected = in[0];
  expected.shape.back() = row_width(in[1]);
  check_type("grouped_matmul_wgrad", "drows", in[1], expected);
  const int64_t experts = attrs.get_int("num_experts", in[2].shape[1]);
  const int64_t inner = row_width(in[0]), outer = row_width(in[1]);
  TensorType dw{param_dtype(in[0].dtype),
                transposed(attrs) ? Shape{experts, outer, inner} : Shape{experts, inner, outer}};
  check_optional("grouped_matmul_wgrad", "acc", in[3], dw);
  return {dw};
}

ShardingRule rule_grouped_wgrad(Types in, Types out, const Attrs& attrs) {
  const std::string_view w = transposed(attrs) ? "efh" : "ehf";
  ShardingRule rule =
      make_rule(fmt::format("{},{},{},{}->{}", row_letters(in[0], 'h'), row_letters(in[1], 'f'),
                            count_letters(in[0]), in[3].present() ? w : "_", w),
                in, out, "b", has_capacity(in[0]) ? "c" : "r");
  rule.addends = {3};
  add_expert_factor(rule, in[0], in[2].shape[1], {0, 1});
  return rule;
}

void check_kind(std::string_view op, const Attrs& attrs) {
  const std::string kind = attrs.get_string("kind");
  WEFT_OP_CHECK(kind == "gelu" || kind == "gelu_tanh" || kind == "silu", op, "unknown kind {}",
                kind);
}

std::vector<TensorType> infer_expert_glu(Types in, const Attrs& attrs) {
  check_count("expert_glu", in, 3);
  check_kind("expert_glu", attrs);
  check_optional("expert_glu", "up", in[1], in[0]);
  check_rows("expert_glu", "gate", in[0], in[2]);
  return {in[0]};
}

std::vector<TensorType> infer_expert_glu_grad(Types in, const Attrs& attrs) {
  check_count("expert_glu_grad", in, 4);
  check_kind("expert_glu_grad", attrs);
  check_optional("expert_glu_grad", "up", in[1], in[0]);
  check_type("expert_glu_grad", "dy", in[2], in[0]);
  check_rows("expert_glu_grad", "gate", in[0], in[3]);
  return {in[0], in[1]};
}

ShardingRule rule_expert_glu(Types in, Types out, const Attrs&) {
  const std::string rows = row_letters(in[0], 'f');
  const std::string up = in[1].present() ? rows : "_";
  ShardingRule rule = make_rule(fmt::format("{0},{1},{2}->{0}", rows, up, count_letters(in[0])), in,
                                out, "", has_capacity(in[0]) ? "c" : "r");
  add_expert_factor(rule, in[0], in[2].shape[1], {0, 1});
  return rule;
}

ShardingRule rule_expert_glu_grad(Types in, Types out, const Attrs&) {
  const std::string rows = row_letters(in[0], 'f');
  const std::string up = in[1].present() ? rows : "_";
  ShardingRule rule =
      make_rule(fmt::format("{0},{1},{0},{2}->{0},{1}", rows, up, count_letters(in[0])), in, out,
                "", has_capacity(in[0]) ? "c" : "r");
  add_expert_factor(rule, in[0], in[3].shape[1], {0, 1, 2});
  return rule;
}

template <int kFlops>
OpCost cost_rows(Types in, Types out, const Attrs&) {
  return stream_cost(in, out, kFlops);
}

}  // namespace

const OpDef& grouped_matmul_op() {
  static const OpDef def = {.name = "grouped_matmul",
                            .inputs = {"rows", "w", "counts"},
                            .outputs = {"y"},
                            .infer = infer_grouped,
                            .grad = grad_grouped,
                            .cost =
                                [](Types in, Types out, const Attrs& attrs) {
                                  OpCost cost = stream_cost(in, out, 0);
                                  cost.flops =
                                      product_flops(in[0], in[2], attrs, row_width(out[0]));
                                  return cost;
                                },
                            .rule = rule_grouped,
                            .localize = localize_experts,
                            .matmul_like = true};
  return def;
}

const OpDef& grouped_matmul_wgrad_op() {
  static const OpDef def = {.name = "grouped_matmul_wgrad",
                            .inputs = {"rows", "drows", "counts", "acc?"},
                            .outputs = {"dw"},
                            .infer = infer_grouped_wgrad,
                            .no_grad = "second derivatives are not supported",
                            .cost =
                                [](Types in, Types out, const Attrs& attrs) {
                                  OpCost cost = stream_cost(in, out, 0);
                                  cost.flops = product_flops(in[0], in[2], attrs, row_width(in[1]));
                                  return cost;
                                },
                            .rule = rule_grouped_wgrad,
                            .addends = {{3, 0}},
                            .localize = localize_experts,
                            .matmul_like = true};
  return def;
}

const OpDef& expert_glu_op() {
  static const OpDef def = {
      .name = "expert_glu",
      .inputs = {"gate", "up?", "counts"},
      .outputs = {"y"},
      .infer = infer_expert_glu,
      .grad = [](Graph& graph, const Node& node,
                 std::span<const ValueId> dy) -> std::vector<ValueId> {
        const std::vector<ValueId> grads =
            graph.add_node(OpKind::expert_glu_grad,
                           {node.inputs[0], node.inputs[1], dy[0], node.inputs[2]}, node.attrs);
        const bool gated = node.inputs[1] != kNoValue;
        return {grads[0], gated ? grads[1] : kNoValue, kNoValue};
      },
      .cost = cost_rows<11>,
      .rule = rule_expert_glu,
      .aliases = {{0, 0}, {1, 0}},
      .localize = localize_experts};
  return def;
}

const OpDef& expert_glu_grad_op() {
  static const OpDef def = {.name = "expert_glu_grad",
                            .inputs = {"gate", "up?", "dy", "counts"},
                            .outputs = {"dgate", "dup?"},
                            .infer = infer_expert_glu_grad,
                            .no_grad = "second derivatives are not supported",
                            .cost = cost_rows<20>,
                            .rule = rule_expert_glu_grad,
                            .aliases = {{0, 0}, {1, 1}, {2, 1}, {2, 0}},
                            .localize = localize_experts};
  return def;
}

}  // namespace weft
