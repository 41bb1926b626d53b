// embedding, its gradient, and select_rows.
#include "weft/ops/ops.h"

namespace weft {
namespace {

std::vector<TensorType> infer_embedding(Types in, const Attrs&) {
  check_count("embedding", in, 2);
  check_rank("embedding", "ids", in[0], 2);
  check_rank("embedding", "table", in[1], 2);
  WEFT_OP_CHECK(in[0].dtype == DType::i32, "embedding", "ids must be i32");
  return {{in[1].dtype, {in[0].shape[0], in[0].shape[1], in[1].shape[1]}}};
}

std::vector<ValueId> grad_embedding(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  const int64_t rows = graph.type(node.inputs[1]).shape[0];
  Attrs attrs = node.attrs;
  attrs.set("rows", rows);
  return {kNoValue, graph.add(OpKind::embedding_grad, {node.inputs[0], dy[0], kNoValue}, attrs)};
}

std::vector<TensorType> infer_embedding_grad(Types in, const Attrs& attrs) {
  check_count("embedding_grad", in, 3);
  check_rank("embedding_grad", "ids", in[0], 2);
  check_rank("embedding_grad", "dy", in[1], 3);
  TensorType table{param_dtype(in[1].dtype), {attrs.get_int("rows"), in[1].shape[2]}};
  check_optional("embedding_grad", "acc", in[2], table);
  return {table};
}

std::vector<TensorType> infer_select(Types in, const Attrs&) {
  check_count("select_rows", in, 2);
  check_rank("select_rows", "x", in[0], 3);
  check_type("select_rows", "index", in[1], {DType::i32, {in[0].shape[0]}});
  return {{in[0].dtype, {in[0].shape[0], 1, in[0].shape[2]}}};
}

/// A rank that holds a piece of the table knows its first row.
void localize_rows(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (rule.factors[i].name != "v" || pieces[i].size == rule.factors[i].size) continue;
    attrs.set("first_row", attrs.get_int("first_row", 0) + pieces[i].begin);
    if (attrs.contains("rows")) attrs.set("rows", pieces[i].size);
  }
}

}  // namespace

const OpDef& embedding_op() {
  static const OpDef def = {
      .name = "embedding",
      .inputs = {"ids", "table"},
      .outputs = {"y"},
      .infer = infer_embedding,
      .grad = grad_embedding,
      .cost =
          [](Types in, Types out, const Attrs&) {
            OpCost cost;
            cost.bytes =
                static_cast<double>(in[0].bytes()) + 2.0 * static_cast<double>(out[0].bytes());
            return cost;
          },
      // A cut vocabulary gives zeros for ids of other pieces: a partial sum.
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bs,vh->bsh", in, out, "v"); },
      .localize = localize_rows};
  return def;
}

const OpDef& embedding_grad_op() {
  static const OpDef def = {
      .name = "embedding_grad",
      .inputs = {"ids", "dy", "acc?"},
      .outputs = {"dtable"},
      .infer = infer_embedding_grad,
      .no_grad = "second derivatives are not supported",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 0); },
      .rule =
          [](Types in, Types out, const Attrs&) {
            ShardingRule rule =
                make_rule(in[2].present() ? "bs,bsh,vh->vh" : "bs,bsh,_->vh", in, out, "bs");
            rule.addends = {2};
            return rule;
          },
      .addends = {{2, 0}},
      .localize = localize_rows};
  return def;
}

const OpDef& select_rows_op() {
  static const OpDef def = {
      .name = "select_rows",
      .inputs = {"x", "index"},
      .outputs = {"y"},
      .infer = infer_select,
      .no_grad = "only used for generation",
      .cost =
          [](Types, Types out, const Attrs&) {
            return OpCost{0, 2.0 * static_cast<double>(out[0].bytes())};
          },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bsh,b->b1h", in, out, "", "s"); }};
  return def;
}

}  // namespace weft
