// router and its gradient: which experts a token goes to, with which weights, and the row of each
// of its copies. Softmax over all experts and top-k as in Mixtral and Qwen-MoE, or sigmoid scores
// with a selection bias and groups as in DeepSeek-V3; docs/moe.md.
#include "weft/ops/ops.h"

namespace weft {
namespace {

int64_t top_k(const Attrs& attrs) { return attrs.get_int("top_k"); }

void check_routing(std::string_view op, Types in, const Attrs& attrs) {
  check_rank(op, "x", in[0], 3);
  check_rank(op, "w", in[1], 2);
  const int64_t experts = in[1].shape[0];
  check_type(op, "w", in[1], {param_dtype(in[0].dtype), {experts, in[0].shape[2]}});
  check_type(op, "lengths", in[2], {DType::i32, {in[0].shape[0]}});
  const int64_t k = top_k(attrs);
  const int64_t groups = attrs.get_int("groups", 1);
  const int64_t top_groups = attrs.get_int("top_groups", groups);
  WEFT_OP_CHECK(k >= 1 && k <= experts && groups >= 1 && experts % groups == 0 && top_groups >= 1 &&
                    top_groups <= groups && k <= experts / groups * top_groups &&
                    attrs.get_int("capacity", 0) >= 0,
                op, "got {} of {} experts, {} of {} groups", k, experts, top_groups, groups);
  const std::string score = attrs.get_string("score");
  WEFT_OP_CHECK(score == "softmax" || score == "sigmoid", op, "unknown score {}", score);
}

std::vector<TensorType> infer_router(Types in, const Attrs& attrs) {
  check_count("router", in, 5);
  check_routing("router", in, attrs);
  const DType wide = param_dtype(in[0].dtype);
  const int64_t B = in[0].shape[0], S = in[0].shape[1], E = in[1].shape[0], K = top_k(attrs);
  check_optional("router", "bias", in[3], {wide, {E}});
  check_optional("router", "aux_scale", in[4], {wide, {1}});
  return {{wide, {B, S, E}},       {wide, {B, S, K}},    {DType::i32, {B, S, K}},
          {DType::i32, {B, S, K}}, {DType::i32, {B, E}}, {wide, {B, E + kRouterStats}}};
}

/// Scores of all experts of all tokens.
double routing_flops(Types in) {
  return 2.0 * static_cast<double>(in[0].elements()) * static_cast<double>(in[1].shape[0]);
}

ShardingRule rule_router(Types in, Types out, const Attrs&) {
  return make_rule(fmt::format("bsh,eh,b,{},{}->bse,bsk,bsk,bsk,be,bt", in[3].present() ? "e" : "_",
                               in[4].present() ? "1" : "_"),
                   in, out, "", "shekt");
}

std::vector<ValueId> grad_router(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  // What the balance losses add is part of the gradient, not of the loss (docs/moe.md).
  const std::vector<ValueId> grads =
      graph.add_node(OpKind::router_grad,
                     {node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[4],
                      node.outputs[0], node.outputs[3], node.outputs[5], dy[1], kNoValue},
                     node.attrs);
  return {grads[0], grads[1], kNoValue, kNoValue, kNoValue};
}

std::vector<TensorType> infer_router_grad(Types in, const Attrs& attrs) {
  check_count("router_grad", in, 9);
  check_routing("router_grad", in, attrs);
  const DType wide = param_dtype(in[0].dtype);
  const int64_t B = in[0].shape[0], S = in[0].shape[1], E = in[1].shape[0], K = top_k(attrs);
  check_optional("router_grad", "aux_scale", in[3], {wide, {1}});
  check_type("router_grad", "logits", in[4], {wide, {B, S, E}});
  check_type("router_grad", "experts", in[5], {DType::i32, {B, S, K}});
  check_type("router_grad", "stats", in[6], {wide, {B, E + kRouterStats}});
  check_optional("router_grad", "dweights", in[7], {wide, {B, S, K}});
  check_optional("router_grad", "acc", in[8], in[1]);
  return {in[0], in[1]};
}

ShardingRule rule_router_grad(Types in, Types out, const Attrs&) {
  ShardingRule rule =
      make_rule(fmt::format("bsh,eh,b,{},bse,bsk,bt,{},{}->bsh,eh", in[3].present() ? "1" : "_",
                            in[7].present() ? "bsk" : "_", in[8].present() ? "eh" : "_"),
                in, out, "b", "shekt");
  rule.addends = {8};
  return rule;
}

std::vector<TensorType> infer_bias_update(Types in, const Attrs& attrs) {
  check_count("router_bias_update", in, 3);
  check_rank("router_bias_update", "bias", in[0], 1);
  check_type("router_bias_update", "stats", in[1], {in[0].dtype, {in[0].shape[0] + kRouterStats}});
  check_type("router_bias_update", "apply", in[2], {DType::i32, {1}});
  WEFT_OP_CHECK(attrs.get_double("rate") >= 0, "router_bias_update", "rate is negative");
  return {in[0]};
}

}  // namespace

const OpDef& router_op() {
  static const OpDef def = {.name = "router",
                            .inputs = {"x", "w", "lengths", "bias?", "aux_scale?"},
                            .outputs = {"logits", "weights", "slots", "experts", "counts", "stats"},
                            .infer = infer_router,
                            .grad = grad_router,
                            .cost =
                                [](Types in, Types out, const Attrs&) {
                                  OpCost cost = stream_cost(in, out, 0);
                                  cost.flops = routing_flops(in);
                                  return cost;
                                },
                            .rule = rule_router,
                            .matmul_like = true};
  return def;
}

const OpDef& router_grad_op() {
  static const OpDef def = {.name = "router_grad",
                            .inputs = {"x", "w", "lengths", "aux_scale?", "logits", "experts",
                                       "stats", "dweights?", "acc?"},
                            .outputs = {"dx", "dw"},
                            .infer = infer_router_grad,
                            .no_grad = "second derivatives are not supported",
                            .cost =
                                [](Types in, Types out, const Attrs&) {
                                  OpCost cost = stream_cost(in, out, 0);
                                  cost.flops = 2 * routing_flops(in);
                                  return cost;
                                },
                            .rule = rule_router_grad,
                            .addends = {{8, 1}},
                            .matmul_like = true};
  return def;
}

const OpDef& router_bias_update_op() {
  static const OpDef def = {
      .name = "router_bias_update",
      .inputs = {"bias", "stats", "apply"},
      .outputs = {"bias"},
      .infer = infer_bias_update,
      .no_grad = "updates are not part of the loss",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 2); },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("e,t,1->e", in, out, "", "et"); },
      .aliases = {{0, 0, true}}};
  return def;
}

}  // namespace weft
