// rmsnorm and layernorm with their gradients.
#include "weft/ops/ops.h"

namespace weft {
namespace {

/// Shape of per-group statistics of x […,W] for groups of D features: […,W/D].
TensorType stats_type(const TensorType& x, int64_t group) {
  TensorType stats{param_dtype(x.dtype), x.shape};
  stats.shape.back() = x.shape.back() / group;
  return stats;
}

std::vector<TensorType> infer_rmsnorm(Types in, const Attrs&) {
  check_count("rmsnorm", in, 2);
  check_rank("rmsnorm", "w", in[1], 1);
  const int64_t group = in[1].shape[0];
  WEFT_OP_CHECK(group > 0 && in[0].shape.back() % group == 0, "rmsnorm", "got x {} and w {}",
                shape_text(in[0].shape), shape_text(in[1].shape));
  return {in[0], stats_type(in[0], group)};
}

std::vector<ValueId> grad_rmsnorm(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  return graph.add_node(
      OpKind::rmsnorm_grad,
      {node.inputs[0], node.inputs[1], node.outputs[1], dy[0], kNoValue, kNoValue}, node.attrs);
}

std::vector<TensorType> infer_rmsnorm_grad(Types in, const Attrs&) {
  check_count("rmsnorm_grad", in, 6);
  check_type("rmsnorm_grad", "rstd", in[2], stats_type(in[0], in[1].shape[0]));
  check_type("rmsnorm_grad", "dy", in[3], in[0]);
  check_optional("rmsnorm_grad", "addend", in[4], in[0]);
  check_optional("rmsnorm_grad", "acc", in[5], in[1]);
  return {in[0], in[1]};
}

ShardingRule rule_rmsnorm(Types in, Types out, const Attrs&) {
  if (in[0].shape.back() == in[1].shape[0]) {
    return make_rule(
        fmt::format("{},h->{},{}", leading(in[0], "h"), leading(in[0], "h"), leading(in[0], "1")),
        in, out, "", "h");
  }
  const std::string x = leading(in[0], "(nh)");
  return make_rule(fmt::format("{},h->{},{}", x, x, leading(in[0], "n")), in, out, "", "h",
                   {{'n', out[1].shape.back()}, {'h', in[1].shape[0]}});
}

ShardingRule rule_rmsnorm_grad(Types in, Types out, const Attrs&) {
  const bool grouped = in[0].shape.back() != in[1].shape[0];
  const std::string x = leading(in[0], grouped ? "(nh)" : "h");
  const std::string stats = leading(in[0], grouped ? "n" : "1");
  std::string reduce = leading(in[0], "");
  if (grouped) reduce += "n";
  const std::string text = fmt::format("{},h,{},{},{},{}->{},h", x, stats, x,
                                       in[4].present() ? x : "_", in[5].present() ? "h" : "_", x);
  ShardingRule rule = grouped ? make_rule(text, in, out, reduce, "h",
                                          {{'n', in[2].shape.back()}, {'h', in[1].shape[0]}})
                              : make_rule(text, in, out, reduce, "h");
  rule.addends = {5};
  return rule;
}

std::vector<TensorType> infer_layernorm(Types in, const Attrs&) {
  check_count("layernorm", in, 3);
  const TensorType param{param_dtype(in[0].dtype), {in[0].shape.back()}};
  check_type("layernorm", "w", in[1], param);
  check_type("layernorm", "b", in[2], param);
  TensorType stats{param.dtype, in[0].shape};
  stats.shape.pop_back();
  return {in[0], stats, stats};
}

std::vector<ValueId> grad_layernorm(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  return graph.add_node(OpKind::layernorm_grad,
                        {node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[2], dy[0],
                         kNoValue, kNoValue, kNoValue},
                        node.attrs);
}

std::vector<TensorType> infer_layernorm_grad(Types in, const Attrs&) {
  check_count("layernorm_grad", in, 8);
  check_type("layernorm_grad", "dy", in[4], in[0]);
  check_optional("layernorm_grad", "addend", in[5], in[0]);
  check_optional("layernorm_grad", "acc_w", in[6], in[1]);
  check_optional("layernorm_grad", "acc_b", in[7], in[1]);
  return {in[0], in[1], in[1]};
}

ShardingRule rule_layernorm(Types in, Types out, const Attrs&) {
  const std::string x = leading(in[0], "h");
  const std::string stats = leading(in[0], "");
  return make_rule(fmt::format("{},h,h->{},{},{}", x, x, stats, stats), in, out, "", "h");
}

ShardingRule rule_layernorm_grad(Types in, Types out, const Attrs&) {
  const std::string x = leading(in[0], "h");
  const std::string stats = leading(in[0], "");
  ShardingRule rule = make_rule(
      fmt::format("{},h,{},{},{},{},{},{}->{},h,h", x, stats, stats, x, in[5].present() ? x : "_",
                  in[6].present() ? "h" : "_", in[7].present() ? "h" : "_", x),
      in, out, stats, "h");
  rule.addends = {6, 7};
  return rule;
}

}  // namespace

const OpDef& rmsnorm_op() {
  static const OpDef def = {
      .name = "rmsnorm",
      .inputs = {"x", "w"},
      .outputs = {"y", "rstd"},
      .infer = infer_rmsnorm,
      .grad = grad_rmsnorm,
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 4); },
      .rule = rule_rmsnorm};
  return def;
}

const OpDef& rmsnorm_grad_op() {
  static const OpDef def = {
      .name = "rmsnorm_grad",
      .inputs = {"x", "w", "rstd", "dy", "addend?", "acc?"},
      .outputs = {"dx", "dw"},
      .infer = infer_rmsnorm_grad,
      .no_grad = "second derivatives are not supported",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 8); },
      .rule = rule_rmsnorm_grad,
      .addends = {{4, 0}, {5, 1}}};
  return def;
}

const OpDef& layernorm_op() {
  static const OpDef def = {
      .name = "layernorm",
      .inputs = {"x", "w", "b"},
      .outputs = {"y", "mean", "rstd"},
      .infer = infer_layernorm,
      .grad = grad_layernorm,
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 8); },
      .rule = rule_layernorm};
  return def;
}

const OpDef& layernorm_grad_op() {
  static const OpDef def = {
      .name = "layernorm_grad",
      .inputs = {"x", "w", "mean", "rstd", "dy", "addend?", "acc_w?", "acc_b?"},
      .outputs = {"dx", "dw", "db"},
      .infer = infer_layernorm_grad,
      .no_grad = "second derivatives are not supported",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 12); },
      .rule = rule_layernorm_grad,
      .addends = {{5, 0}, {6, 1}, {7, 2}}};
  return def;
}

}  // namespace weft
