// Elementwise operators: add, cast, activation, glu, dropout, and their gradients.
#include "weft/ops/ops.h"

namespace weft {
namespace {

/// Letters for every dim of a value, all of which may be cut. Batch and sequence lead what has
/// features as well, experts lead their rows; parameters and scalars have dims of their own.
std::string all_dims(const TensorType& type) {
  const size_t rank = type.shape.size();
  const std::string_view letters = rank == 4 ? "ebch" : rank == 3 ? "bsh" : "ijklmn";
  return std::string(letters.substr(0, rank));
}

/// Rule of an operator whose present operands all have the shape of output 0.
ShardingRule rule_same(Types in, Types out, const Attrs&) {
  std::string text;
  for (size_t i = 0; i < in.size(); ++i) {
    text += (i == 0 ? "" : ",") + (in[i].present() ? all_dims(in[i]) : std::string("_"));
  }
  text += "->";
  for (size_t i = 0; i < out.size(); ++i) text += (i == 0 ? "" : ",") + all_dims(out[i]);
  return make_rule(text, in, out);
}

/// The same for operators that are linear in all operands together.
ShardingRule rule_linear(Types in, Types out, const Attrs& attrs) {
  ShardingRule rule = rule_same(in, out, attrs);
  rule.linear = true;
  rule.flat = true;
  return rule;
}

template <int kFlops>
OpCost cost_stream(Types in, Types out, const Attrs&) {
  return stream_cost(in, out, kFlops);
}

std::vector<TensorType> infer_add(Types in, const Attrs&) {
  check_count("add", in, 2);
  check_type("add", "b", in[1], in[0]);
  return {in[0]};
}

std::vector<TensorType> infer_cast(Types in, const Attrs& attrs) {
  check_count("cast", in, 1);
  const auto dtype = parse_dtype(attrs.get_string("dtype"));
  WEFT_OP_CHECK(dtype && is_floating(*dtype) && is_floating(in[0].dtype), "cast",
                "unknown dtype {}", attrs.get_string("dtype"));
  return {{*dtype, in[0].shape}};
}

void check_kind(std::string_view op, const Attrs& attrs) {
  const std::string kind = attrs.get_string("kind");
  WEFT_OP_CHECK(kind == "gelu" || kind == "gelu_tanh" || kind == "silu", op, "unknown kind {}",
                kind);
}

std::vector<TensorType> infer_activation(Types in, const Attrs& attrs) {
  check_count("activation", in, 1);
  check_kind("activation", attrs);
  return {in[0]};
}

std::vector<TensorType> infer_activation_grad(Types in, const Attrs& attrs) {
  check_count("activation_grad", in, 2);
  check_kind("activation_grad", attrs);
  check_type("activation_grad", "dy", in[1], in[0]);
  return {in[0]};
}

std::vector<TensorType> infer_glu(Types in, const Attrs& attrs) {
  check_count("glu", in, 2);
  check_kind("glu", attrs);
  check_type("glu", "up", in[1], in[0]);
  return {in[0]};
}

std::vector<TensorType> infer_glu_grad(Types in, const Attrs& attrs) {
  check_count("glu_grad", in, 3);
  check_kind("glu_grad", attrs);
  check_type("glu_grad", "up", in[1], in[0]);
  check_type("glu_grad", "dy", in[2], in[0]);
  return {in[0], in[0]};
}

std::vector<TensorType> infer_dropout(Types in, const Attrs& attrs) {
  check_count("dropout", in, 4);
  check_rank("dropout", "x", in[0], 3);
  check_type("dropout", "step", in[1], {DType::i64, {1}});
  check_type("dropout", "samples", in[2], {DType::i64, {in[0].shape[0]}});
  check_optional("dropout", "residual", in[3], in[0]);
  const double p = attrs.get_double("p");
  WEFT_OP_CHECK(p >= 0 && p < 1, "dropout", "got p {}, expected [0, 1)", p);
  return {in[0]};
}

/// The mask belongs to the logical element: a piece knows where it begins.
void localize_dropout(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].begin == 0) continue;
    const auto move = [&](std::string_view first) {
      attrs.set(first, attrs.get_int(first, 0) + pieces[i].begin);
    };
    if (rule.factors[i].name == "s") move("first_position");
    if (rule.factors[i].name == "h") move("first_feature");
  }
}

std::vector<ValueId> grad_dropout(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const ValueId dx =
      graph.add(OpKind::dropout, {dy[0], node.inputs[1], node.inputs[2], kNoValue}, node.attrs);
  return {dx, kNoValue, kNoValue, node.inputs[3] == kNoValue ? kNoValue : dy[0]};
}

}  // namespace

const OpDef& add_op() {
  static const OpDef def = {
      .name = "add",
      .inputs = {"a", "b"},
      .outputs = {"y"},
      .infer = infer_add,
      .grad = [](Graph&, const Node&, std::span<const ValueId> dy) -> std::vector<ValueId> {
        return {dy[0], dy[0]};
      },
      .cost = cost_stream<1>,
      .rule = rule_linear,
      .aliases = {{0, 0}, {1, 0}}};
  return def;
}

const OpDef& cast_op() {
  static const OpDef def = {
      .name = "cast",
      .inputs = {"x"},
      .outputs = {"y"},
      .infer = infer_cast,
      .grad = [](Graph& graph, const Node& node,
                 std::span<const ValueId> dy) -> std::vector<ValueId> {
        const DType dtype = graph.type(node.inputs[0]).dtype;
        return {graph.add(OpKind::cast, {dy[0]}, {{"dtype", std::string(dtype_name(dtype))}})};
      },
      .cost = cost_stream<0>,
      .rule = rule_linear};
  return def;
}

const OpDef& activation_op() {
  static const OpDef def = {
      .name = "activation",
      .inputs = {"x"},
      .outputs = {"y"},
      .infer = infer_activation,
      .grad = [](Graph& graph, const Node& node,
                 std::span<const ValueId> dy) -> std::vector<ValueId> {
        return {graph.add(OpKind::activation_grad, {node.inputs[0], dy[0]}, node.attrs)};
      },
      .cost = cost_stream<10>,
      .rule = rule_same,
      .aliases = {{0, 0}}};
  return def;
}

const OpDef& activation_grad_op() {
  static const OpDef def = {.name = "activation_grad",
                            .inputs = {"x", "dy"},
                            .outputs = {"dx"},
                            .infer = infer_activation_grad,
                            .no_grad = "second derivatives are not supported",
                            .cost = cost_stream<15>,
                            .rule = rule_same,
                            .aliases = {{1, 0}, {0, 0}}};
  return def;
}

const OpDef& glu_op() {
  static const OpDef def = {.name = "glu",
                            .inputs = {"gate", "up"},
                            .outputs = {"y"},
                            .infer = infer_glu,
                            .grad = [](Graph& graph, const Node& node,
                                       std::span<const ValueId> dy) -> std::vector<ValueId> {
                              return graph.add_node(OpKind::glu_grad,
                                                    {node.inputs[0], node.inputs[1], dy[0]},
                                                    node.attrs);
                            },
                            .cost = cost_stream<11>,
                            .rule = rule_same,
                            .aliases = {{0, 0}, {1, 0}}};
  return def;
}

const OpDef& glu_grad_op() {
  static const OpDef def = {.name = "glu_grad",
                            .inputs = {"gate", "up", "dy"},
                            .outputs = {"dgate", "dup"},
                            .infer = infer_glu_grad,
                            .no_grad = "second derivatives are not supported",
                            .cost = cost_stream<20>,
                            .rule = rule_same,
                            .aliases = {{0, 0}, {1, 1}, {2, 1}, {2, 0}}};
  return def;
}

const OpDef& dropout_op() {
  static const OpDef def = {
      .name = "dropout",
      .inputs = {"x", "step", "samples", "residual?"},
      .outputs = {"y"},
      .infer = infer_dropout,
      .grad = grad_dropout,
      .cost = cost_stream<12>,
      .rule =
          [](Types in, Types out, const Attrs&) {
            return make_rule(in[3].present() ? "bsh,1,b,bsh->bsh" : "bsh,1,b,_->bsh", in, out);
          },
      .aliases = {{0, 0}},
      .addends = {{3, 0}},
      .localize = localize_dropout};
  return def;
}

}  // namespace weft
