// Transfers between the tiers. They are made after everything else, so they have neither gradient
// nor sharding rule.
#include "weft/ops/ops.h"

namespace weft {
namespace {

constexpr std::string_view kNoGradient = "tiers are chosen after differentiation";

std::vector<TensorType> infer_load(Types in, const Attrs& attrs) {
  check_count("load", in, 1);
  WEFT_OP_CHECK(attrs.get_int("tier") >= 0 && attrs.get_int("tier") < kNumTiers, "load",
                "got tier {}", attrs.get_int("tier"));
  if (!attrs.contains("size")) return {in[0]};
  const int64_t begin = attrs.get_int("begin");
  const int64_t size = attrs.get_int("size");
  WEFT_OP_CHECK(begin >= 0 && size >= 0 && begin + size <= in[0].elements(), "load",
                "got range [{}, {}) of {} elements", begin, begin + size, in[0].elements());
  return {{in[0].dtype, {size}}};
}

std::vector<TensorType> infer_store(Types in, const Attrs& attrs) {
  check_count("store", in, 2);
  const int64_t begin = attrs.get_int("begin", 0);
  WEFT_OP_CHECK(
      in[0].dtype == in[1].dtype && begin >= 0 && begin + in[0].elements() <= in[1].elements(),
      "store", "got {}{} at {} of {}{}", dtype_name(in[0].dtype), shape_text(in[0].shape), begin,
      dtype_name(in[1].dtype), shape_text(in[1].shape));
  return {in[1]};
}

OpCost moved(const TensorType& type) {
  OpCost cost;
  cost.bytes = static_cast<double>(type.bytes());
  return cost;
}

}  // namespace

const OpDef& load_op() {
  static const OpDef def = {
      .name = "load",
      .inputs = {"x"},
      .outputs = {"y"},
      .infer = infer_load,
      .no_grad = kNoGradient,
      .cost = [](Types, Types out, const Attrs&) { return moved(out[0]); },
      .tier_of = [](const Graph&,
                    const Node& node) { return static_cast<Tier>(node.attrs.get_int("tier")); },
      .transfer = true};
  return def;
}

const OpDef& store_op() {
  static const OpDef def = {
      .name = "store",
      .inputs = {"x", "target"},
      .outputs = {"target"},
      .infer = infer_store,
      .no_grad = kNoGradient,
      .cost = [](Types in, Types, const Attrs&) { return moved(in[0]); },
      .aliases = {{1, 0, true}},
      .tier_of = [](const Graph& graph,
                    const Node& node) { return graph.value(node.inputs[1]).tier; },
      .transfer = true};
  return def;
}

}  // namespace weft
