#include "weft/shard/strategy.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/shard/pieces.h"

namespace weft {
namespace {

using Kind = AxisChoice::Kind;

bool contains(const ShardingRule::Dims& dims, int factor) {
  return std::any_of(dims.begin(), dims.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

/// Adds the axis to every dim that `factor` leads.
void cut_dims(const ShardingRule& rule, const ShardingRule::Dims& dims, const AxisChoice& choice,
              AxisId axis, Placement& placement) {
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t inner = elements_per_factor(rule, dims[i], choice.factor);
    if (inner == 0) continue;
    DimCut& cut = placement.dims[i];
    cut.axes.push_back(axis);
    cut.block = std::max(cut.block, choice.block * inner);
  }
}

class Placer {
 public:
  Placer(const NodeView& node, const Mesh& mesh) : node_(node), mesh_(mesh) {
    const auto start = [](const std::vector<TensorType>& types, std::vector<Placement>& to) {
      for (const TensorType& type : types) to.push_back(whole_placement(type.shape.size()));
    };
    start(node.inputs, result_.inputs);
    start(node.outputs, result_.outputs);
    result_.first_only.assign(node.inputs.size(), 0);
  }

  void apply(AxisId axis, const AxisChoice& choice) {
    switch (choice.kind) {
      case Kind::replicate: return;
      case Kind::factor: cut_factor(axis, choice); return;
      case Kind::flat: cut_flat(axis); return;
      case Kind::linear:
        for (size_t i = 0; i < node_.inputs.size(); ++i) {
          if (passes_partial(node_.rule, i)) set_partial(result_.inputs[i], axis);
        }
        for (const int input : node_.rule.addends) {
          if (!passes_partial(node_.rule, static_cast<size_t>(input))) {
            result_.first_only[static_cast<size_t>(input)] |= 1U << axis;
          }
        }
        for (size_t i = 0; i < node_.outputs.size(); ++i) set_partial(result_.outputs[i], axis);
        return;
    }
  }

  NodePlacements take() {
    const auto finish = [&](const std::vector<TensorType>& types, std::vector<Placement>& all) {
      for (size_t i = 0; i < all.size(); ++i) {
        all[i] = canonical(std::move(all[i]), types[i].shape, mesh_);
      }
    };
    finish(node_.inputs, result_.inputs);
    finish(node_.outputs, result_.outputs);
    return std::move(result_);
  }

 private:
  static void set_partial(Placement& placement, AxisId axis, Reduction reduction = Reduction::sum) {
    placement.partial |= 1U << axis;
    placement.reduction = reduction;
  }

  void cut_factor(AxisId axis, const AxisChoice& choice) {
    const ShardingRule& rule = node_.rule;
    const Factor& factor = rule.factors[static_cast<size_t>(choice.factor)];
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      cut_dims(rule, rule.inputs[i], choice, axis, result_.inputs[i]);
    }
    for (const PartInput& part : rule.parts) {
      if (part.factor == choice.factor) {
        set_partial(result_.inputs[static_cast<size_t>(part.input)], axis);
      }
    }
    for (const int input : rule.addends) {
      const auto i = static_cast<size_t>(input);
      if (factor.kind == FactorKind::reduce && !contains(rule.inputs[i], choice.factor)) {
        result_.first_only[i] |= 1U << axis;
      }
    }
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (!node_.outputs[i].present()) continue;
      if (contains(rule.outputs[i], choice.factor)) {
        cut_dims(rule, rule.outputs[i], choice, axis, result_.outputs[i]);
      } else if (factor.kind == FactorKind::reduce) {
        set_partial(result_.outputs[i], axis, factor.reduction);
      }
    }
  }

  void cut_flat(AxisId axis) {
    const ShardingRule::Dims& whole = node_.rule.inputs[0];
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i].present() && node_.rule.inputs[i] == whole) {
        result_.inputs[i].flat.push_back(axis);
      }
    }
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (!node_.outputs[i].present()) continue;
      if (node_.rule.outputs[i] == whole) {
        result_.outputs[i].flat.push_back(axis);
      } else {
        set_partial(result_.outputs[i], axis);
      }
    }
  }

  const NodeView& node_;
  const Mesh& mesh_;
  NodePlacements result_;
};

}  // namespace

NodeView view_node(const Graph& graph, const Node& node) {
  NodeView view;
  view.def = &op_def(node.op);
  view.inputs = graph.input_types(node);
  view.outputs = graph.output_types(node);
  WEFT_CHECK(view.def->rule != nullptr, "shard", "{} [{}] has no sharding rule", view.def->name,
             node.scope);
  view.rule = view.def->rule(view.inputs, view.outputs, node.attrs);
  return view;
}

NodePlacements place_operands(const NodeView& node, const NodeStrategy& strategy,
                              const Mesh& mesh) {
  Placer placer(node, mesh);
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) > 1) placer.apply(axis, strategy[static_cast<size_t>(axis)]);
  }
  return placer.take();
}

bool passes_partial(const ShardingRule& rule, size_t input) {
  const std::vector<int>& some = rule.linear_inputs;
  return some.empty() || std::find(some.begin(), some.end(), static_cast<int>(input)) != some.end();
}

bool may_cut(const ShardingRule& rule, int factor) {
  if (rule.factors[static_cast<size_t>(factor)].kind == FactorKind::whole) return false;
  const auto leads = [&](const ShardingRule::Dims& dims) {
    return std::all_of(dims.begin(), dims.end(), [&](const std::vector<int>& dim) {
      return std::find(dim.begin(), dim.end(), factor) == dim.end() || dim[0] == factor;
    });
  };
  return std::all_of(rule.inputs.begin(), rule.inputs.end(), leads) &&
         std::all_of(rule.outputs.begin(), rule.outputs.end(), leads);
}

int64_t elements_per_factor(const ShardingRule& rule, const std::vector<int>& dim, int factor) {
  const auto at = std::find(dim.begin(), dim.end(), factor);
  if (at == dim.end()) return 0;
  int64_t inner = 1;
  for (auto minor = at + 1; minor != dim.end(); ++minor) {
    inner *= rule.factors[static_cast<size_t>(*minor)].size;
  }
  return inner;
}

std::vector<CutPiece> factor_pieces(const ShardingRule& rule, const NodeStrategy& strategy,
                                    const Mesh& mesh, int64_t rank) {
  std::vector<DimCut> cuts(rule.factors.size());
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    const AxisChoice& choice = strategy[static_cast<size_t>(axis)];
    if (mesh.size(axis) == 1 || choice.kind != Kind::factor) continue;
    DimCut& cut = cuts[static_cast<size_t>(choice.factor)];
    cut.axes.push_back(axis);
    cut.block = std::max(cut.block, choice.block);
  }
  std::vector<CutPiece> pieces;
  for (size_t i = 0; i < cuts.size(); ++i) {
    pieces.push_back(dim_piece(rule.factors[i].size, cuts[i], cuts[i].axes.size(), mesh, rank));
  }
  return pieces;
}

std::string strategy_text(const ShardingRule& rule, const NodeStrategy& strategy,
                          const Mesh& mesh) {
  std::string text;
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    const AxisChoice& choice = strategy[static_cast<size_t>(axis)];
    if (mesh.size(axis) == 1 || choice.kind == Kind::replicate) continue;
    text += fmt::format("{}{}:", text.empty() ? "" : " ", mesh.name(axis));
    if (choice.kind == Kind::flat) text += "flat";
    if (choice.kind == Kind::linear) text += "linear";
    if (choice.kind != Kind::factor) continue;
    text += rule.factors[static_cast<size_t>(choice.factor)].name;
    if (choice.block > 1) text += fmt::format("/{}", choice.block);
  }
  return text;
}

}  // namespace weft
