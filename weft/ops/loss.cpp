// Cross entropy over a vocabulary: on given logits, and fused with the output projection so that
// only a chunk of logits exists at a time.
#include <algorithm>

#include "weft/ops/ops.h"

namespace weft {
namespace {

TensorType scalar_of(const TensorType& x) { return {param_dtype(x.dtype), {1}}; }

std::vector<TensorType> infer_cross_entropy(Types in, const Attrs&) {
  check_count("cross_entropy", in, 2);
  check_rank("cross_entropy", "logits", in[0], 3);
  const Shape tokens{in[0].shape[0], in[0].shape[1]};
  check_type("cross_entropy", "labels", in[1], {DType::i32, tokens});
  return {scalar_of(in[0]), {param_dtype(in[0].dtype), tokens}};
}

std::vector<ValueId> grad_cross_entropy(Graph& graph, const Node& node,
                                        std::span<const ValueId> dy) {
  return {graph.add(OpKind::cross_entropy_grad,
                    {node.inputs[0], node.inputs[1], node.outputs[1], dy[0]}),
          kNoValue};
}

std::vector<TensorType> infer_cross_entropy_grad(Types in, const Attrs&) {
  check_count("cross_entropy_grad", in, 4);
  check_rank("cross_entropy_grad", "logits", in[0], 3);
  check_type("cross_entropy_grad", "scale", in[3], scalar_of(in[0]));
  return {in[0]};
}

void check_linear(std::string_view op, Types in, const Attrs& attrs) {
  check_rank(op, "x", in[0], 3);
  check_rank(op, "w", in[1], 2);
  const bool transpose = attrs.get_bool("transpose_w", true);
  WEFT_OP_CHECK(in[1].shape[transpose ? 1 : 0] == in[0].shape[2] && in[0].dtype == in[1].dtype, op,
                "got x {} and w {}", shape_text(in[0].shape), shape_text(in[1].shape));
  check_type(op, "labels", in[2], {DType::i32, {in[0].shape[0], in[0].shape[1]}});
  WEFT_OP_CHECK(attrs.get_int("chunk_rows") > 0, op, "chunk_rows must be positive");
}

std::vector<TensorType> infer_row_lse(Types in, const Attrs&) {
  check_count("row_lse", in, 1);
  check_rank("row_lse", "logits", in[0], 3);
  return {{param_dtype(in[0].dtype), {in[0].shape[0], in[0].shape[1]}}};
}

std::vector<TensorType> infer_pick_logits(Types in, const Attrs& attrs) {
  check_count("pick_logits", in, 2);
  check_rank("pick_logits", "logits", in[0], 3);
  const Shape tokens{in[0].shape[0], in[0].shape[1]};
  check_type("pick_logits", "labels", in[1], {DType::i32, tokens});
  WEFT_OP_CHECK(attrs.get_int("first_column", 0) >= 0, "pick_logits", "first_column is negative");
  return {{param_dtype(in[0].dtype), tokens}};
}

std::vector<TensorType> infer_token_loss(Types in, const Attrs&) {
  check_count("token_loss", in, 3);
  check_rank("token_loss", "lse", in[0], 2);
  check_type("token_loss", "picked", in[1], in[0]);
  check_type("token_loss", "labels", in[2], {DType::i32, in[0].shape});
  return {{in[0].dtype, {1}}};
}

/// A rank that holds a piece of the vocabulary knows where the piece begins.
void localize_columns(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (rule.factors[i].name == "v" && pieces[i].size != rule.factors[i].size) {
      attrs.set("first_column", attrs.get_int("first_column", 0) + pieces[i].begin);
    }
  }
}

/// chunk_rows counts rows of the whole micro-batch.
void localize_rows(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  int64_t rows = attrs.get_int("chunk_rows");
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Factor& factor = rule.factors[i];
    if (factor.kind != FactorKind::reduce || pieces[i].size == factor.size) continue;
    rows = std::max<int64_t>(1, (rows * pieces[i].size + factor.size - 1) / factor.size);
  }
  attrs.set("chunk_rows", rows);
}

std::vector<TensorType> infer_linear(Types in, const Attrs& attrs) {
  check_count("linear_cross_entropy", in, 3);
  check_linear("linear_cross_entropy", in, attrs);
  return {scalar_of(in[0])};
}

std::vector<TensorType> infer_linear_train(Types in, const Attrs& attrs) {
  check_count("linear_cross_entropy_train", in, 5);
  check_linear("linear_cross_entropy_train", in, attrs);
  check_type("linear_cross_entropy_train", "scale", in[3], scalar_of(in[0]));
  TensorType dw{param_dtype(in[0].dtype), in[1].shape};
  check_optional("linear_cross_entropy_train", "acc", in[4], dw);
  return {scalar_of(in[0]), in[0], dw};
}

OpCost linear_cost(Types in, Types out, double matmuls) {
  OpCost cost = stream_cost(in, out, 0);
  cost.flops = matmuls * 2.0 * static_cast<double>(in[1].elements()) *
               static_cast<double>(num_rows(in[0].shape));
  return cost;
}

/// The loss is the root of the graph: its gradients were computed in the forward pass with the
/// factor `scale`, which therefore has to be the cotangent that arrives here.
std::vector<ValueId> grad_linear_train(Graph&, const Node& node, std::span<const ValueId> dy) {
  WEFT_OP_CHECK(dy[0] == node.inputs[3], "linear_cross_entropy_train",
                "the loss must be the root and its cotangent the scale input");
  return {node.outputs[1], node.outputs[2], kNoValue, kNoValue, kNoValue};
}

/// Stages of cross entropy that may be cut along the vocabulary.
struct Stages {
  ValueId loss = kNoValue;
  ValueId lse = kNoValue;
};

Stages emit_stages(Graph& graph, ValueId logits, ValueId labels) {
  Stages stages;
  stages.lse = graph.add(OpKind::row_lse, {logits});
  const ValueId picked = graph.add(OpKind::pick_logits, {logits, labels});
  stages.loss = graph.add(OpKind::token_loss, {stages.lse, picked, labels});
  return stages;
}

std::vector<ValueId> expand_cross_entropy(Graph& graph, const Node& node) {
  const Stages stages = emit_stages(graph, node.inputs[0], node.inputs[1]);
  return {stages.loss, stages.lse};
}

/// Positions per piece of the sequence so that about chunk_rows rows of logits exist at a time.
int64_t chunk_positions(const TensorType& labels, const Attrs& attrs) {
  const int64_t batch = std::max<int64_t>(1, labels.shape[0]);
  const int64_t positions = std::max<int64_t>(1, labels.shape[1]);
  return std::clamp<int64_t>(attrs.get_int("chunk_rows") / batch, 1, positions);
}

ValueId positions_of(Graph& graph, ValueId value, int64_t begin, int64_t size) {
  if (begin == 0 && size == graph.type(value).shape[1]) return value;
  return graph.add(OpKind::slice, {value}, {{"dim", 1}, {"begin", begin}, {"size", size}});
}

ValueId sum_of(Graph& graph, ValueId a, ValueId b) {
  return a == kNoValue ? b : graph.add(OpKind::add, {a, b});
}

std::vector<ValueId> expand_linear(Graph& graph, const Node& node) {
  const TensorType labels = graph.type(node.inputs[2]);
  const int64_t step = chunk_positions(labels, node.attrs);
  ValueId total = kNoValue;
  for (int64_t begin = 0; begin == 0 || begin < labels.shape[1]; begin += step) {
    const int64_t size = std::min(step, labels.shape[1] - begin);
    const ValueId x = positions_of(graph, node.inputs[0], begin, size);
    const ValueId ids = positions_of(graph, node.inputs[2], begin, size);
    const ValueId logits = graph.add(OpKind::matmul, {x, node.inputs[1], kNoValue, kNoValue},
                                     {{"transpose_w", node.attrs.get_bool("transpose_w", true)}});
    total = sum_of(graph, total, emit_stages(graph, logits, ids).loss);
  }
  return {total};
}

std::vector<ValueId> expand_linear_train(Graph& graph, const Node& node) {
  const bool transpose = node.attrs.get_bool("transpose_w", true);
  const TensorType labels = graph.type(node.inputs[2]);
  const int64_t step = chunk_positions(labels, node.attrs);
  ValueId total = kNoValue;
  ValueId dw = node.inputs[4];
  std::vector<ValueId> pieces;
  for (int64_t begin = 0; begin == 0 || begin < labels.shape[1]; begin += step) {
    const int64_t size = std::min(step, labels.shape[1] - begin);
    const ValueId x = positions_of(graph, node.inputs[0], begin, size);
    const ValueId ids = positions_of(graph, node.inputs[2], begin, size);
    const ValueId logits = graph.add(OpKind::matmul, {x, node.inputs[1], kNoValue, kNoValue},
                                     {{"transpose_w", transpose}});
    const Stages stages = emit_stages(graph, logits, ids);
    total = sum_of(graph, total, stages.loss);
    const ValueId dlogits =
        graph.add(OpKind::cross_entropy_grad, {logits, ids, stages.lse, node.inputs[3]});
    pieces.push_back(graph.add(OpKind::matmul, {dlogits, node.inputs[1], kNoValue, kNoValue},
                               {{"transpose_w", !transpose}}));
    const ValueId part =
        graph.add(OpKind::matmul_wgrad, {x, dlogits, kNoValue}, {{"transpose_w", transpose}});
    dw = sum_of(graph, dw, part);
  }
  const ValueId dx =
      pieces.size() == 1 ? pieces[0] : graph.add(OpKind::concat, pieces, {{"dim", 1}});
  return {total, dx, dw};
}

ShardingRule rule_linear(Types in, Types out, const Attrs& attrs, bool train) {
  const std::string_view w = attrs.get_bool("transpose_w", true) ? "vh" : "hv";
  if (!train) return make_rule(fmt::format("bsh,{},bs->1", w), in, out, "bs", "vh");
  ShardingRule rule =
      make_rule(fmt::format("bsh,{},bs,1,{}->1,bsh,{}", w, in[4].present() ? w : "_", w), in, out,
                "bs", "vh");
  rule.addends = {4};
  return rule;
}

}  // namespace

const OpDef& cross_entropy_op() {
  static const OpDef def = {
      .name = "cross_entropy",
      .inputs = {"logits", "labels"},
      .outputs = {"loss", "lse"},
      .infer = infer_cross_entropy,
      .grad = grad_cross_entropy,
      .cost =
          [](Types in, Types out, const Attrs&) {
            OpCost cost = stream_cost(in, out, 0);
            cost.flops = 4.0 * static_cast<double>(in[0].elements());
            return cost;
          },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bsv,bs->1,bs", in, out, "bs", "v"); },
      .expand = expand_cross_entropy};
  return def;
}

const OpDef& cross_entropy_grad_op() {
  static const OpDef def = {
      .name = "cross_entropy_grad",
      .inputs = {"logits", "labels", "lse", "scale"},
      .outputs = {"dlogits"},
      .infer = infer_cross_entropy_grad,
      .no_grad = "second derivatives are not supported",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 4); },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bsv,bs,bs,1->bsv", in, out); },
      .aliases = {{0, 0}},
      .localize = localize_columns};
  return def;
}

const OpDef& row_lse_op() {
  static const OpDef def = {
      .name = "row_lse",
      .inputs = {"logits"},
      .outputs = {"lse"},
      .infer = infer_row_lse,
      .no_grad = "cross_entropy has the gradient",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 3); },
      .rule =
          [](Types in, Types out, const Attrs&) {
            ShardingRule rule = make_rule("bsv->bs", in, out, "v");
            for (Factor& factor : rule.factors) {
              if (factor.name == "v") factor.reduction = Reduction::logsumexp;
            }
            return rule;
          }};
  return def;
}

const OpDef& pick_logits_op() {
  static const OpDef def = {
      .name = "pick_logits",
      .inputs = {"logits", "labels"},
      .outputs = {"picked"},
      .infer = infer_pick_logits,
      .no_grad = "cross_entropy has the gradient",
      .cost = [](Types, Types out, const Attrs&) { return stream_cost(out, out, 1); },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bsv,bs->bs", in, out, "v"); },
      .localize = localize_columns};
  return def;
}

const OpDef& token_loss_op() {
  static const OpDef def = {
      .name = "token_loss",
      .inputs = {"lse", "picked", "labels"},
      .outputs = {"loss"},
      .infer = infer_token_loss,
      .no_grad = "cross_entropy has the gradient",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 2); },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bs,bs,bs->1", in, out, "bs"); }};
  return def;
}

const OpDef& linear_cross_entropy_op() {
  static const OpDef def = {
      .name = "linear_cross_entropy",
      .inputs = {"x", "w", "labels"},
      .outputs = {"loss"},
      .infer = infer_linear,
      .no_grad = "training uses linear_cross_entropy_train",
      .cost = [](Types in, Types out, const Attrs&) { return linear_cost(in, out, 1); },
      .rule = [](Types in, Types out,
                 const Attrs& attrs) { return rule_linear(in, out, attrs, false); },
      .expand = expand_linear,
      .localize = localize_rows,
      .matmul_like = true};
  return def;
}

const OpDef& linear_cross_entropy_train_op() {
  static const OpDef def = {
      .name = "linear_cross_entropy_train",
      .inputs = {"x", "w", "labels", "scale", "acc?"},
      .outputs = {"loss", "dx", "dw"},
      .infer = infer_linear_train,
      .grad = grad_linear_train,
      .cost = [](Types in, Types out, const Attrs&) { return linear_cost(in, out, 3); },
      .rule = [](Types in, Types out,
                 const Attrs& attrs) { return rule_linear(in, out, attrs, true); },
      .addends = {{4, 2}},
      .expand = expand_linear_train,
      .localize = localize_rows,
      .matmul_like = true};
  return def;
}

}  // namespace weft
