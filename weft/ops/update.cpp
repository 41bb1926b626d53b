// The end of a step: gradient norm, verdict, optimizer updates.
#include "weft/ops/ops.h"

namespace weft {
namespace {

std::vector<TensorType> infer_sum_squares(Types in, const Attrs&) {
  check_count("sum_squares", in, 1);
  return {{DType::f64, {1}}};
}

std::vector<TensorType> infer_verdict(Types in, const Attrs& attrs) {
  WEFT_OP_CHECK(in.size() >= 2, "verdict", "got {} inputs, expected at least 2", in.size());
  WEFT_OP_CHECK(attrs.get_double("max_norm") >= 0, "verdict", "max_norm is negative");
  for (size_t i = 1; i < in.size(); ++i) check_type("verdict", "sums", in[i], {DType::f64, {1}});
  return {in[0], in[0], {DType::i32, {1}}};
}

/// Type of the optional compute copy of a parameter: of the whole, or of the piece that is updated.
TensorType copy_type(const TensorType& w, const Attrs& attrs) {
  const std::string text = attrs.get_string("copy_dtype", "none");
  if (text == "none") return {};
  const auto dtype = parse_dtype(text);
  WEFT_OP_CHECK(dtype.has_value(), "update", "unknown copy_dtype {}", text);
  if (attrs.contains("size")) return {*dtype, {attrs.get_int("size")}};
  return {*dtype, w.shape};
}

/// Operands of an update have one shape. An update of a piece (attributes begin, size) takes each
/// of them either whole or as the piece.
void check_pieces(std::string_view op, Types tensors, const Attrs& attrs) {
  if (!attrs.contains("size")) {
    for (const TensorType& type : tensors) check_optional(op, "operand", type, tensors[0]);
    return;
  }
  const int64_t begin = attrs.get_int("begin");
  const int64_t size = attrs.get_int("size");
  for (const TensorType& type : tensors) {
    if (!type.present()) continue;
    WEFT_OP_CHECK(type.dtype == tensors[0].dtype && begin >= 0 && size >= 0 &&
                      (type.elements() == size || type.elements() >= begin + size),
                  op, "got an operand {}{} for elements [{}, {})", dtype_name(type.dtype),
                  shape_text(type.shape), begin, begin + size);
  }
}

/// Cost of an update with `tensors` reads of parameters, of a piece or of all.
OpCost update_cost(Types in, Types out, const Attrs& attrs, double flops, int tensors) {
  if (!attrs.contains("size")) return stream_cost(in, out, flops);
  const auto size = static_cast<double>(attrs.get_int("size"));
  OpCost cost;
  cost.flops = flops * size;
  cost.bytes = size * static_cast<double>(dtype_size(in[0].dtype)) * (2 * tensors - 1);
  return cost;
}

void check_scalars(std::string_view op, Types in, size_t first, DType dtype) {
  check_type(op, "hyper", in[first], {dtype, {3}});
  check_type(op, "factor", in[first + 1], {dtype, {1}});
  check_type(op, "apply", in[first + 2], {DType::i32, {1}});
}

std::vector<TensorType> infer_adamw(Types in, const Attrs& attrs) {
  check_count("adamw", in, 7);
  check_pieces("adamw", in.first(4), attrs);
  check_scalars("adamw", in, 4, in[0].dtype);
  return {in[0], in[1], in[2], copy_type(in[0], attrs)};
}

std::vector<TensorType> infer_sgd(Types in, const Attrs& attrs) {
  check_count("sgd", in, 6);
  check_pieces("sgd", in.first(3), attrs);
  check_scalars("sgd", in, 3, in[0].dtype);
  return {in[0], in[2], copy_type(in[0], attrs)};
}

constexpr std::string_view kLetters = "ijklmn";

std::string dims(const TensorType& type) {
  return type.present() ? std::string(kLetters.substr(0, type.shape.size())) : "_";
}

ShardingRule flat_rule(std::string_view text, Types in, Types out, std::string_view reduce = "") {
  ShardingRule rule = make_rule(text, in, out, reduce);
  rule.flat = true;
  return rule;
}

}  // namespace

const OpDef& sum_squares_op() {
  static const OpDef def = {.name = "sum_squares",
                            .inputs = {"x"},
                            .outputs = {"sum"},
                            .infer = infer_sum_squares,
                            .no_grad = "the norm is not part of the loss",
                            .cost =
                                [](Types in, Types out, const Attrs&) {
                                  OpCost cost = stream_cost(in, out, 0);
                                  cost.flops = 2.0 * static_cast<double>(in[0].elements());
                                  return cost;
                                },
                            .rule =
                                [](Types in, Types out, const Attrs&) {
                                  const std::string x = dims(in[0]);
                                  return flat_rule(x + "->1", in, out, x);
                                }};
  return def;
}

const OpDef& verdict_op() {
  static const OpDef def = {
      .name = "verdict",
      .inputs = {"inv_scale", "sums*"},
      .outputs = {"norm", "factor", "apply"},
      .infer = infer_verdict,
      .no_grad = "the verdict is not part of the loss",
      .cost = [](Types in, Types out, const Attrs&) { return stream_cost(in, out, 1); },
      .rule =
          [](Types in, Types out, const Attrs&) {
            std::string text = "1";
            for (size_t i = 1; i < in.size(); ++i) text += ",1";
            return make_rule(text + "->1,1,1", in, out);
          }};
  return def;
}

const OpDef& adamw_op() {
  static const OpDef def = {
      .name = "adamw",
      .inputs = {"w", "m", "v", "g", "hyper", "factor", "apply"},
      .outputs = {"w", "m", "v", "copy?"},
      .infer = infer_adamw,
      .no_grad = "updates are not part of the loss",
      .cost = [](Types in, Types out,
                 const Attrs& attrs) { return update_cost(in, out, attrs, 15, 4); },
      .rule =
          [](Types in, Types out, const Attrs&) {
            const std::string w = dims(in[0]);
            return flat_rule(fmt::format("{0},{0},{0},{0},1,1,1->{0},{0},{0},{1}", w, dims(out[3])),
                             in, out);
          },
      .aliases = {{0, 0, true}, {1, 1, true}, {2, 2, true}}};
  return def;
}

const OpDef& sgd_op() {
  static const OpDef def = {.name = "sgd",
                            .inputs = {"w", "g", "momentum?", "hyper", "factor", "apply"},
                            .outputs = {"w", "momentum?", "copy?"},
                            .infer = infer_sgd,
                            .no_grad = "updates are not part of the loss",
                            .cost =
                                [](Types in, Types out, const Attrs& attrs) {
                                  return update_cost(in, out, attrs, 4, in[2].present() ? 3 : 2);
                                },
                            .rule =
                                [](Types in, Types out, const Attrs&) {
                                  const std::string w = dims(in[0]);
                                  return flat_rule(fmt::format("{0},{0},{1},1,1,1->{0},{1},{2}", w,
                                                               dims(in[2]), dims(out[2])),
                                                   in, out);
                                },
                            .aliases = {{0, 0, true}, {2, 1, true}}};
  return def;
}

}  // namespace weft
