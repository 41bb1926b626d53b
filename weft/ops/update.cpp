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

/// bf16 slots of fp32 parameters are rounded stochastically.
bool rounds_slot(const TensorType& slot, const TensorType& w) {
  return slot.dtype == DType::bf16 && w.dtype == DType::f32;
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
/// of them either whole or as the piece. Slots may have 16 bits.
void check_tensor(std::string_view op, const TensorType& type, const TensorType& w, bool slot,
                  const Attrs& attrs) {
  if (!type.present()) return;
  WEFT_OP_CHECK(type.dtype == w.dtype || (slot && rounds_slot(type, w)), op,
                "got an operand of {} for parameters of {}", dtype_name(type.dtype),
                dtype_name(w.dtype));
  if (!attrs.contains("size")) {
    check_type(op, "operand", {w.dtype, type.shape}, w);
    return;
  }
  const int64_t begin = attrs.get_int("begin");
  const int64_t size = attrs.get_int("size");
  WEFT_OP_CHECK(
      begin >= 0 && size >= 0 && (type.elements() == size || type.elements() >= begin + size), op,
      "got an operand {} for elements [{}, {})", shape_text(type.shape), begin, begin + size);
}

/// Cost of an update: tensors `written` are read and written, the gradient is read.
OpCost update_cost(Types in, Types out, const Attrs& attrs, double flops,
                   std::initializer_list<size_t> written) {
  if (!attrs.contains("size")) return stream_cost(in, out, flops);
  const auto size = static_cast<double>(attrs.get_int("size"));
  int64_t bytes = dtype_size(in[0].dtype);
  for (const size_t i : written) bytes += 2 * dtype_size(in[i].dtype);
  OpCost cost;
  cost.flops = flops * size;
  cost.bytes = size * static_cast<double>(bytes);
  return cost;
}

/// Inputs from `first` on: hyper, factor, apply and step, which a rounded slot needs.
void check_scalars(std::string_view op, Types in, size_t first, bool rounded, const Attrs& attrs) {
  const DType dtype = in[0].dtype;
  check_count(op, in, first + (in.size() > first + 3 || rounded ? 4 : 3));
  check_type(op, "hyper", in[first], {dtype, {3}});
  check_type(op, "factor", in[first + 1], {dtype, {1}});
  check_type(op, "apply", in[first + 2], {DType::i32, {1}});
  if (in.size() > first + 3) check_optional(op, "step", in[first + 3], {DType::i64, {1}});
  if (!rounded) return;
  WEFT_OP_CHECK(in[first + 3].present(), op, "a rounded slot needs the step");
  attrs.get_int("seed");
  attrs.get_int("site");
}

std::vector<TensorType> infer_adamw(Types in, const Attrs& attrs) {
  WEFT_OP_CHECK(in.size() >= 7, "adamw", "got {} inputs, expected 7 or 8", in.size());
  for (size_t i = 0; i < 4; ++i) check_tensor("adamw", in[i], in[0], i == 1 || i == 2, attrs);
  WEFT_OP_CHECK(in[1].dtype == in[2].dtype, "adamw", "the moments differ in dtype");
  check_scalars("adamw", in, 4, rounds_slot(in[1], in[0]), attrs);
  return {in[0], in[1], in[2], copy_type(in[0], attrs)};
}

std::vector<TensorType> infer_sgd(Types in, const Attrs& attrs) {
  WEFT_OP_CHECK(in.size() >= 6, "sgd", "got {} inputs, expected 6 or 7", in.size());
  for (size_t i = 0; i < 3; ++i) check_tensor("sgd", in[i], in[0], i == 2, attrs);
  check_scalars("sgd", in, 3, rounds_slot(in[2], in[0]), attrs);
  return {in[0], in[2], copy_type(in[0], attrs)};
}

/// The dims of the step, which is input `index` if there are so many.
std::string_view step_dims(Types in, size_t index) {
  if (in.size() <= index) return "";
  return in[index].present() ? ",1" : ",_";
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
  static const OpDef def = {.name = "adamw",
                            .inputs = {"w", "m", "v", "g", "hyper", "factor", "apply", "step?"},
                            .outputs = {"w", "m", "v", "copy?"},
                            .infer = infer_adamw,
                            .no_grad = "updates are not part of the loss",
                            .cost =
                                [](Types in, Types out, const Attrs& attrs) {
                                  return update_cost(in, out, attrs, 15, {0, 1, 2});
                                },
                            .rule =
                                [](Types in, Types out, const Attrs&) {
                                  const std::string w = dims(in[0]);
                                  return flat_rule(
                                      fmt::format("{0},{0},{0},{0},1,1,1{2}->{0},{0},{0},{1}", w,
                                                  dims(out[3]), step_dims(in, 7)),
                                      in, out);
                                },
                            .aliases = {{0, 0, true}, {1, 1, true}, {2, 2, true}}};
  return def;
}

const OpDef& sgd_op() {
  static const OpDef def = {.name = "sgd",
                            .inputs = {"w", "g", "momentum?", "hyper", "factor", "apply", "step?"},
                            .outputs = {"w", "momentum?", "copy?"},
                            .infer = infer_sgd,
                            .no_grad = "updates are not part of the loss",
                            .cost =
                                [](Types in, Types out, const Attrs& attrs) {
                                  return in[2].present() ? update_cost(in, out, attrs, 4, {0, 2})
                                                         : update_cost(in, out, attrs, 4, {0});
                                },
                            .rule =
                                [](Types in, Types out, const Attrs&) {
                                  const std::string w = dims(in[0]);
                                  return flat_rule(
                                      fmt::format("{0},{0},{1},1,1,1{3}->{0},{1},{2}", w,
                                                  dims(in[2]), dims(out[2]), step_dims(in, 6)),
                                      in, out);
                                },
                            .aliases = {{0, 0, true}, {2, 1, true}}};
  return def;
}

}  // namespace weft
