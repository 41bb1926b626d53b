// OpDef: everything the compile half knows about an operator, as one plain struct defined in one
// file of ops/. Code outside ops/ asks these traits, never which operator a node is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"
#include "weft/ir/attrs.h"
#include "weft/ir/sharding_rule.h"
#include "weft/ir/tier.h"

namespace weft {

class Graph;
struct Node;
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

/// The list of operators; enumerators are made from ops/op_list.def (see ops/op_kind.h).
enum class OpKind : uint16_t;

/// Element type and logical extents of a value; dtype none marks an absent optional operand.
struct TensorType {
  DType dtype = DType::none;
  Shape shape;

  bool present() const { return dtype != DType::none; }
  int64_t elements() const { return present() ? num_elements(shape) : 0; }
  int64_t bytes() const { return elements() * dtype_size(dtype); }
  bool operator==(const TensorType&) const = default;
};

/// Work of one execution.
struct OpCost {
  double flops = 0;  // multiply and add count 2; only what the mathematics needs
  double bytes = 0;  // least memory traffic: every operand read or written once
};

/// Output `output` may (or must) use the memory of input `input`.
struct OpAlias {
  int input = 0;
  int output = 0;
  bool required = false;
};

/// Input `input`, when present, is added to output `output` inside the kernel. The fuse_add pass
/// folds `add` nodes into such inputs; this is how residuals and gradient sums cost nothing.
struct OpAddend {
  int input = 0;
  int output = 0;
};

using InferFn = std::vector<TensorType> (*)(std::span<const TensorType> inputs, const Attrs& attrs);
using CostFn = OpCost (*)(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                          const Attrs& attrs);
using RuleFn = ShardingRule (*)(std::span<const TensorType> inputs,
                                std::span<const TensorType> outputs, const Attrs& attrs);
/// Emits the gradient of `node` into `graph`. `output_grads` has one entry per output, kNoValue
/// where no gradient arrives. Returns one value per input, kNoValue where none flows.
using GradFn = std::vector<ValueId> (*)(Graph& graph, const Node& node,
                                        std::span<const ValueId> output_grads);
/// Rewrites the attributes of one rank's piece of a node: `pieces` has the range of every factor of
/// the rule that this rank computes, as elements of the factor.
using LocalizeFn = void (*)(Attrs& attrs, const ShardingRule& rule,
                            std::span<const CutPiece> pieces);
/// Where the outputs of a transfer lie.
using TierFn = Tier (*)(const Graph& graph, const Node& node);
/// Emits the unfused definition of `node`; returns one value per output. Oracle in tests and
/// fallback on backends without a kernel.
using ExpandFn = std::vector<ValueId> (*)(Graph& graph, const Node& node);

struct OpDef {
  std::string_view name;
  std::vector<std::string_view> inputs;   // "bias?" = optional; a last "sums*" = any number
  std::vector<std::string_view> outputs;  // "copy?" = only with some attributes
  InferFn infer = nullptr;
  GradFn grad = nullptr;  // nullptr: `no_grad` says why
  std::string_view no_grad;
  CostFn cost = nullptr;
  RuleFn rule = nullptr;
  std::vector<OpAlias> aliases;
  std::vector<OpAddend> addends;
  ExpandFn expand = nullptr;
  LocalizeFn localize = nullptr;  // nullptr: attributes do not depend on the piece
  TierFn tier_of = nullptr;       // nullptr: where the node is computed
  bool matmul_like = false;       // counts towards MFU
  bool transfer = false;          // moves bytes between tiers, run by the session
  bool collective = false;        // run by the communicator, see ops/collective.h
  bool in_place = false;          // output i may use the memory of input i, whatever their number
};

}  // namespace weft
