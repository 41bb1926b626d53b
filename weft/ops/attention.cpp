// Causal attention with grouped heads, and its gradient. Neither ever holds an S x S matrix.
#include "weft/ops/ops.h"

namespace weft {
namespace {

struct Heads {
  int64_t num = 0, num_kv = 0, dim = 0;
};

Heads heads_of(const Attrs& attrs) {
  return {attrs.get_int("num_heads"), attrs.get_int("num_kv_heads"), attrs.get_int("head_dim")};
}

void check_operands(std::string_view op, Types in, const Heads& heads) {
  check_rank(op, "q", in[0], 3);
  const int64_t batch = in[0].shape[0];
  const int64_t seq = in[0].shape[1];
  // A rank may have no heads at all.
  WEFT_OP_CHECK(
      heads.num_kv > 0 ? heads.num % heads.num_kv == 0 : heads.num == 0 && heads.num_kv == 0, op,
      "got {} heads and {} kv heads, expected a multiple", heads.num, heads.num_kv);
  check_type(op, "q", in[0], {in[0].dtype, {batch, seq, heads.num * heads.dim}});
  const TensorType kv{in[0].dtype, {batch, seq, heads.num_kv * heads.dim}};
  check_type(op, "k", in[1], kv);
  check_type(op, "v", in[2], kv);
  check_optional(op, "segments", in[3], {DType::i32, {batch, seq}});
}

std::vector<TensorType> infer_attention(Types in, const Attrs& attrs) {
  check_count("attention", in, 4);
  const Heads heads = heads_of(attrs);
  check_operands("attention", in, heads);
  return {in[0], {param_dtype(in[0].dtype), {in[0].shape[0], heads.num, in[0].shape[1]}}};
}

/// Pairs (query, key) that are visible, per sequence.
double visible_pairs(int64_t seq, int64_t window) {
  const auto s = static_cast<double>(seq);
  if (window <= 0 || window >= seq) return s * (s + 1) / 2;
  const auto w = static_cast<double>(window);
  return w * (w + 1) / 2 + (s - w) * w;
}

OpCost attention_cost(Types in, Types out, const Attrs& attrs, double matmuls) {
  const Heads heads = heads_of(attrs);
  OpCost cost = stream_cost(in, out, 0);
  cost.flops = matmuls * 2.0 * static_cast<double>(in[0].shape[0] * heads.num * heads.dim) *
               visible_pairs(in[0].shape[1], attrs.get_int("window", 0));
  return cost;
}

std::vector<ValueId> grad_attention(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const auto grads = graph.add_node(OpKind::attention_grad,
                                    {node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3],
                                     node.outputs[0], node.outputs[1], dy[0]},
                                    node.attrs);
  return {grads[0], grads[1], grads[2], kNoValue};
}

std::vector<TensorType> infer_attention_grad(Types in, const Attrs& attrs) {
  check_count("attention_grad", in, 7);
  check_operands("attention_grad", in, heads_of(attrs));
  check_type("attention_grad", "o", in[4], in[0]);
  check_type("attention_grad", "do", in[6], in[0]);
  return {in[0], in[1], in[2]};
}

ShardingRule rule(Types in, Types out, const Attrs& attrs, bool gradient) {
  const Heads heads = heads_of(attrs);
  const std::string_view segments = in[3].present() ? "bs" : "_";
  const std::string text =
      gradient
          ? fmt::format("bs(grd),bs(gd),bs(gd),{},bs(grd),b(gr)s,bs(grd)->bs(grd),bs(gd),bs(gd)",
                        segments)
          : fmt::format("bs(grd),bs(gd),bs(gd),{}->bs(grd),b(gr)s", segments);
  return make_rule(text, in, out, "", "srd",
                   {{'g', heads.num_kv},
                    {'r', heads.num_kv == 0 ? 1 : heads.num / heads.num_kv},
                    {'d', heads.dim}});
}

void localize_heads(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (rule.factors[i].name != "g") continue;
    const int64_t groups = attrs.get_int("num_kv_heads");
    const int64_t per_group = groups == 0 ? 0 : attrs.get_int("num_heads") / groups;
    attrs.set("num_heads", pieces[i].size * per_group);
    attrs.set("num_kv_heads", pieces[i].size);
  }
}

}  // namespace

const OpDef& attention_op() {
  static const OpDef def = {
      .name = "attention",
      .inputs = {"q", "k", "v", "segments?"},
      .outputs = {"o", "lse"},
      .infer = infer_attention,
      .grad = grad_attention,
      .cost = [](Types in, Types out,
                 const Attrs& attrs) { return attention_cost(in, out, attrs, 2); },
      .rule = [](Types in, Types out, const Attrs& attrs) { return rule(in, out, attrs, false); },
      .localize = localize_heads,
      .matmul_like = true};
  return def;
}

const OpDef& attention_grad_op() {
  static const OpDef def = {
      .name = "attention_grad",
      .inputs = {"q", "k", "v", "segments?", "o", "lse", "do"},
      .outputs = {"dq", "dk", "dv"},
      .infer = infer_attention_grad,
      .no_grad = "second derivatives are not supported",
      // Four products of the mathematics; recomputing the scores is not counted.
      .cost = [](Types in, Types out,
                 const Attrs& attrs) { return attention_cost(in, out, attrs, 4); },
      .rule = [](Types in, Types out, const Attrs& attrs) { return rule(in, out, attrs, true); },
      .localize = localize_heads,
      .matmul_like = true};
  return def;
}

}  // namespace weft
