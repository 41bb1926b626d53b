// Rotary position embedding: a table of cosines and sines per position, and the rotation.
#include "weft/ops/ops.h"

namespace weft {
namespace {

std::vector<TensorType> infer_table(Types in, const Attrs& attrs) {
  check_count("rope_table", in, 1);
  check_rank("rope_table", "positions", in[0], 2);
  const int64_t head_dim = attrs.get_int("head_dim");
  WEFT_OP_CHECK(in[0].dtype == DType::i32 && head_dim > 0 && head_dim % 2 == 0, "rope_table",
                "got head_dim {}, expected an even number", head_dim);
  const DType dtype = attrs.get_bool("wide", false) ? DType::f64 : DType::f32;
  return {{dtype, {in[0].shape[0], in[0].shape[1], head_dim}}};
}

std::vector<TensorType> infer_rope(Types in, const Attrs& attrs) {
  check_count("rope", in, 2);
  check_rank("rope", "x", in[0], 3);
  const int64_t head_dim = attrs.get_int("head_dim");
  WEFT_OP_CHECK(in[0].shape[2] % head_dim == 0, "rope", "width {} is not a multiple of head_dim {}",
                in[0].shape[2], head_dim);
  check_type("rope", "table", in[1],
             {param_dtype(in[0].dtype), {in[0].shape[0], in[0].shape[1], head_dim}});
  return {in[0]};
}

std::vector<ValueId> grad_rope(Graph& graph, const Node& node, std::span<const ValueId> dy) {
  Attrs attrs = node.attrs;
  attrs.set("inverse", !attrs.get_bool("inverse", false));
  return {graph.add(OpKind::rope, {dy[0], node.inputs[1]}, attrs), kNoValue};
}

ShardingRule rule_rope(Types in, Types out, const Attrs& attrs) {
  const int64_t head_dim = attrs.get_int("head_dim");
  return make_rule("bs(nd),bsd->bs(nd)", in, out, "", "d",
                   {{'n', in[0].shape[2] / head_dim}, {'d', head_dim}});
}

}  // namespace

const OpDef& rope_table_op() {
  static const OpDef def = {
      .name = "rope_table",
      .inputs = {"positions"},
      .outputs = {"table"},
      .infer = infer_table,
      .no_grad = "positions are integers",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 20); },
      .rule = [](Types in, Types out,
                 const Attrs&) { return make_rule("bs->bsd", in, out, "", "d"); }};
  return def;
}

const OpDef& rope_op() {
  static const OpDef def = {
      .name = "rope",
      .inputs = {"x", "table"},
      .outputs = {"y"},
      .infer = infer_rope,
      .grad = grad_rope,
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 3); },
      .rule = rule_rope,
      .aliases = {{0, 0}}};
  return def;
}

}  // namespace weft
