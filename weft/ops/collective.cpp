// Collectives, and the local operators that cut and join values.
#include "weft/ops/collective.h"

#include <algorithm>
#include <charconv>

#include "weft/ops/ops.h"

namespace weft {
namespace {

constexpr std::string_view kNoGradient =
    "placements are chosen after differentiation, so no gradient passes through it";

/// Groups of many ranks share this much, as long as each member keeps a worthwhile chunk.
constexpr int64_t kLargestWorkspace = int64_t{16} << 20;
constexpr int64_t kSmallestChunk = int64_t{64} << 10;

int ways_of(const Attrs& attrs) { return static_cast<int>(attrs.get_int("ways")); }

CutPiece my_piece(int64_t extent, int64_t block, const Attrs& attrs) {
  return cut_piece(extent, block, attrs.get_int("ways"), attrs.get_int("index"));
}

size_t dim_index(std::string_view op, const TensorType& type, int64_t dim) {
  WEFT_OP_CHECK(dim >= 0 && dim < static_cast<int64_t>(type.shape.size()), op,
                "got dim {} of a tensor {}", dim, shape_text(type.shape));
  return static_cast<size_t>(dim);
}

std::vector<Shape> shapes_attr(const Attrs& attrs) {
  const std::string text = attrs.get_string("shape");
  std::vector<Shape> shapes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    shapes.push_back(parse_extents_attr(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return shapes;
}

std::vector<TensorType> infer_all_reduce(Types in, const Attrs&) {
  WEFT_OP_CHECK(!in.empty(), "all_reduce", "got no inputs");
  for (const TensorType& type : in) {
    WEFT_OP_CHECK(type.dtype == in[0].dtype, "all_reduce", "tensors of one call have one dtype");
  }
  return {in.begin(), in.end()};
}

std::vector<TensorType> infer_reduce_scatter(Types in, const Attrs& attrs) {
  std::vector<TensorType> out(in.begin(), in.end());
  const int64_t dim = attrs.get_int("dim");
  for (TensorType& type : out) {
    if (dim < 0) {
      type.shape = {my_piece(type.elements(), 1, attrs).size};
    } else {
      int64_t& extent = type.shape[dim_index("reduce_scatter", type, dim)];
      extent = my_piece(extent, attrs.get_int("block", 1), attrs).size;
    }
  }
  return out;
}

std::vector<TensorType> infer_all_gather(Types in, const Attrs& attrs) {
  const std::vector<Shape> shapes = shapes_attr(attrs);
  WEFT_OP_CHECK(shapes.size() == in.size(), "all_gather", "got {} shapes for {} inputs",
                shapes.size(), in.size());
  const int64_t dim = attrs.get_int("dim");
  std::vector<TensorType> out;
  for (size_t i = 0; i < in.size(); ++i) {
    TensorType whole{in[i].dtype, shapes[i]};
    Shape expected = whole.shape;
    if (dim < 0) {
      expected = {my_piece(whole.elements(), 1, attrs).size};
    } else {
      int64_t& extent = expected[dim_index("all_gather", whole, dim)];
      extent = my_piece(extent, attrs.get_int("block", 1), attrs).size;
    }
    WEFT_OP_CHECK(in[i].shape == expected, "all_gather", "got piece {} of {}, expected {}",
                  shape_text(in[i].shape), shape_text(whole.shape), shape_text(expected));
    out.push_back(std::move(whole));
  }
  return out;
}

std::vector<TensorType> infer_all_to_all(Types in, const Attrs& attrs) {
  check_count("all_to_all", in, 1);
  TensorType out = in[0];
  int64_t& cut = out.shape[dim_index("all_to_all", out, attrs.get_int("dim"))];
  int64_t& gathered = out.shape[dim_index("all_to_all", out, attrs.get_int("gather_dim"))];
  WEFT_OP_CHECK(&cut != &gathered, "all_to_all", "cuts and gathers the same dim");
  const int64_t extent = attrs.get_int("gather_extent");
  WEFT_OP_CHECK(gathered == my_piece(extent, attrs.get_int("gather_block", 1), attrs).size,
                "all_to_all", "got a piece of {} of {}", gathered, extent);
  cut = my_piece(cut, attrs.get_int("block", 1), attrs).size;
  gathered = extent;
  return {out};
}

std::vector<TensorType> infer_slice(Types in, const Attrs& attrs) {
  check_count("slice", in, 1);
  const int64_t dim = attrs.get_int("dim");
  const int64_t begin = attrs.get_int("begin");
  const int64_t size = attrs.get_int("size");
  TensorType out = in[0];
  if (dim < 0) out.shape = {in[0].elements()};
  int64_t& extent = out.shape[dim_index("slice", out, std::max<int64_t>(dim, 0))];
  WEFT_OP_CHECK(begin >= 0 && size >= 0 && begin + size <= extent, "slice",
                "got range [{}, {}) of {}", begin, begin + size, extent);
  extent = size;
  return {out};
}

std::vector<TensorType> infer_concat(Types in, const Attrs& attrs) {
  WEFT_OP_CHECK(!in.empty(), "concat", "got no inputs");
  TensorType out = in[0];
  const size_t dim = dim_index("concat", out, attrs.get_int("dim"));
  out.shape[dim] = 0;
  for (const TensorType& type : in) {
    TensorType same = type;
    same.shape.at(dim) = in[0].shape[dim];
    check_type("concat", "xs", same, in[0]);
    out.shape[dim] += type.shape[dim];
  }
  return {out};
}

/// Rule of an operator that changes the extent of one dim: all other dims may be cut, none where
/// the dim is the flattening.
ShardingRule rule_resize(Types in, Types out, const Attrs& attrs) {
  static constexpr std::string_view kLetters = "bshxy";
  ShardingRule rule;
  rule.linear = true;
  if (attrs.get_int("dim") < 0) {
    rule.inputs.emplace_back(in[0].shape.size());
    rule.outputs.emplace_back(1);
    return rule;
  }
  const auto dim = static_cast<size_t>(attrs.get_int("dim"));
  for (size_t i = 0; i < out[0].shape.size(); ++i) {
    rule.factors.push_back({std::string(1, kLetters[i]), out[0].shape[i],
                            i == dim ? FactorKind::whole : FactorKind::pass});
  }
  const auto dims = [&](const TensorType& type) {
    ShardingRule::Dims result(type.shape.size());
    for (size_t i = 0; i < type.shape.size(); ++i) {
      if (i != dim) result[i] = {static_cast<int>(i)};
    }
    return result;
  };
  for (const TensorType& type : in) rule.inputs.push_back(dims(type));
  rule.outputs.push_back(dims(out[0]));
  return rule;
}

OpCost copy_cost(Types in, Types out, const Attrs&) {
  (void)in;
  OpCost cost;
  for (const TensorType& type : out) cost.bytes += 2.0 * static_cast<double>(type.bytes());
  return cost;
}

CollectiveView view_of(const Shape& whole, int64_t dim, int64_t block, int ways) {
  CollectiveView view;
  if (dim < 0) {
    view.extent = num_elements(whole);
    block = 1;
  } else {
    const auto at = static_cast<size_t>(dim);
    for (size_t i = 0; i < at; ++i) view.outer *= whole[i];
    view.extent = whole[at];
    for (size_t i = at + 1; i < whole.size(); ++i) view.inner *= whole[i];
  }
  for (int i = 0; i < ways; ++i) view.pieces.push_back(cut_piece(view.extent, block, ways, i));
  return view;
}

CollectiveTensor exchange_of(const Shape& input, const Attrs& attrs, int ways) {
  CollectiveTensor tensor;
  const auto cut = static_cast<size_t>(attrs.get_int("dim"));
  const auto gather = static_cast<size_t>(attrs.get_int("gather_dim"));
  const int64_t gather_extent = attrs.get_int("gather_extent");
  tensor.view.extent = input[cut];
  tensor.cut_first = cut < gather;
  for (size_t i = 0; i < input.size(); ++i) {
    if (i == cut || i == gather) continue;
    int64_t& extent = i < std::min(cut, gather)   ? tensor.before
                      : i < std::max(cut, gather) ? tensor.between
                                                  : tensor.behind;
    extent *= input[i];
  }
  for (int i = 0; i < ways; ++i) {
    tensor.view.pieces.push_back(cut_piece(input[cut], attrs.get_int("block", 1), ways, i));
    tensor.gathered.push_back(cut_piece(gather_extent, attrs.get_int("gather_block", 1), ways, i));
  }
  return tensor;
}

CollectiveKind kind_of(OpKind op) {
  if (op == OpKind::all_reduce) return CollectiveKind::all_reduce;
  if (op == OpKind::reduce_scatter) return CollectiveKind::reduce_scatter;
  if (op == OpKind::all_gather) return CollectiveKind::all_gather;
  WEFT_CHECK(op == OpKind::all_to_all, "collective", "{} is no collective", op_name(op));
  return CollectiveKind::all_to_all;
}

/// Elements of all pieces of the other members, and of the largest piece.
int64_t elements_of_others(const CollectiveView& view, int index) {
  return view.elements() - view.piece_elements(index);
}

}  // namespace

std::string extents_attr(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) {
    if (!text.empty()) text += "x";
    text += std::to_string(extent);
  }
  return text;
}

Shape parse_extents_attr(std::string_view text) {
  Shape shape;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    int64_t extent = -1;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, extent);
    WEFT_CHECK(error == std::errc() && stop == text.data() + end && extent >= 0, "collective",
               "got extents \"{}\"", text);
    shape.push_back(extent);
    begin = end + 1;
  }
  return shape;
}

CollectiveSpec collective_spec(const KernelSpec& spec) {
  CollectiveSpec result;
  result.kind = kind_of(spec.op);
  WEFT_CHECK(!spec.inputs.empty() && spec.inputs.size() == spec.outputs.size(), "collective",
             "got {} inputs and {} outputs", spec.inputs.size(), spec.outputs.size());
  result.dtype = spec.inputs[0].dtype;
  result.axis = spec.attrs.get_string("axis");
  result.ways = ways_of(spec.attrs);
  result.index = static_cast<int>(spec.attrs.get_int("index"));
  WEFT_CHECK(result.ways > 0 && result.index >= 0 && result.index < result.ways, "collective",
             "got member {} of {}", result.index, result.ways);
  const std::string reduction = spec.attrs.get_string("reduction", "sum");
  WEFT_CHECK(reduction == "sum" || reduction == "logsumexp", "collective", "got reduction {}",
             reduction);
  result.reduction = reduction == "sum" ? Reduction::sum : Reduction::logsumexp;
  const int64_t dim = spec.attrs.get_int("dim", -1);
  const int64_t block = spec.attrs.get_int("block", 1);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (result.kind == CollectiveKind::all_to_all) {
      result.tensors.push_back(exchange_of(spec.inputs[i].shape, spec.attrs, result.ways));
      continue;
    }
    const bool whole_in = result.kind != CollectiveKind::all_gather;
    const Shape& whole = whole_in ? spec.inputs[i].shape : spec.outputs[i].shape;
    CollectiveTensor tensor;
    tensor.view =
        view_of(whole, result.kind == CollectiveKind::all_reduce ? -1 : dim, block, result.ways);
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

int64_t received_bytes(const CollectiveSpec& spec) {
  int64_t elements = 0;
  const auto at = static_cast<size_t>(spec.index);
  for (const CollectiveTensor& tensor : spec.tensors) {
    const CollectiveView& view = tensor.view;
    const int64_t mine = view.piece_elements(spec.index);
    const int64_t reduced = mine * (spec.ways - 1);
    switch (spec.kind) {
      case CollectiveKind::all_reduce:
        elements += reduced + elements_of_others(view, spec.index);
        break;
      case CollectiveKind::reduce_scatter: elements += reduced; break;
      case CollectiveKind::all_gather: elements += elements_of_others(view, spec.index); break;
      case CollectiveKind::all_to_all: {
        int64_t others = 0;
        for (size_t i = 0; i < tensor.gathered.size(); ++i) {
          if (i != at) others += tensor.gathered[i].size;
        }
        elements += others * view.pieces[at].size * tensor.before * tensor.between * tensor.behind;
        break;
      }
    }
  }
  return elements * dtype_size(spec.dtype);
}

int64_t collective_workspace_bytes(const CollectiveSpec& spec) {
  // A chunk per member to pack into and one to receive into.
  int64_t elements = 0;
  for (const CollectiveTensor& tensor : spec.tensors) {
    int64_t total = tensor.view.elements();
    if (spec.kind == CollectiveKind::all_to_all) {
      int64_t gathered = 0;
      for (const CutPiece& piece : tensor.gathered) gathered += piece.size;
      total = tensor.view.extent * gathered * tensor.before * tensor.between * tensor.behind;
    }
    elements += total;
  }
  const int64_t whole = elements * dtype_size(spec.dtype) + 64 * spec.ways;
  const int64_t chunks = std::min(spec.ways * kCollectiveChunkBytes,
                                  std::max(kLargestWorkspace, spec.ways * kSmallestChunk));
  return 2 * std::min(whole, chunks);
}

const OpDef& all_reduce_op() {
  static const OpDef def = {.name = "all_reduce",
                            .inputs = {"xs*"},
                            .outputs = {"ys*"},
                            .infer = infer_all_reduce,
                            .no_grad = kNoGradient,
                            .cost = copy_cost,
                            .collective = true,
                            .in_place = true};
  return def;
}

const OpDef& reduce_scatter_op() {
  static const OpDef def = {.name = "reduce_scatter",
                            .inputs = {"xs*"},
                            .outputs = {"ys*"},
                            .infer = infer_reduce_scatter,
                            .no_grad = kNoGradient,
                            .cost = copy_cost,
                            .collective = true};
  return def;
}

const OpDef& all_gather_op() {
  static const OpDef def = {.name = "all_gather",
                            .inputs = {"xs*"},
                            .outputs = {"ys*"},
                            .infer = infer_all_gather,
                            .no_grad = kNoGradient,
                            .cost = copy_cost,
                            .collective = true};
  return def;
}

const OpDef& all_to_all_op() {
  static const OpDef def = {.name = "all_to_all",
                            .inputs = {"x"},
                            .outputs = {"y"},
                            .infer = infer_all_to_all,
                            .no_grad = kNoGradient,
                            .cost = copy_cost,
                            .collective = true};
  return def;
}

const OpDef& slice_op() {
  static const OpDef def = {.name = "slice",
                            .inputs = {"x"},
                            .outputs = {"y"},
                            .infer = infer_slice,
                            .no_grad = "only made after differentiation",
                            .cost = copy_cost,
                            .rule = rule_resize};
  return def;
}

const OpDef& concat_op() {
  static const OpDef def = {.name = "concat",
                            .inputs = {"xs*"},
                            .outputs = {"y"},
                            .infer = infer_concat,
                            .no_grad = "only made after differentiation",
                            .cost = copy_cost,
                            .rule = rule_resize};
  return def;
}

}  // namespace weft
