#include "tests/sharding/operator_pieces.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/run_kernel.h"
#include "weft/base/check.h"
#include "weft/base/rng.h"
#include "weft/ir/graph.h"

namespace weft::test {
namespace {

using Ranges = std::vector<CutPiece>;  // one per factor

bool contains(const std::vector<int>& inputs, size_t input) {
  return std::find(inputs.begin(), inputs.end(), static_cast<int>(input)) != inputs.end();
}

/// Is this input one of those in which the operator is linear together?
bool splits(const ShardingRule& rule, size_t input) {
  return rule.linear_inputs.empty() || contains(rule.linear_inputs, input);
}

struct Box {
  Shape begin, extent;
};

/// The part of an operand that belongs to the ranges. Only the first factor of a dim may be cut.
Box box_of(const ShardingRule& rule, const ShardingRule::Dims& dims, const Shape& shape,
           const Ranges& ranges) {
  Box box{Shape(shape.size(), 0), shape};
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].empty()) continue;
    int64_t inner = 1;
    for (size_t minor = 1; minor < dims[i].size(); ++minor) {
      const auto at = static_cast<size_t>(dims[i][minor]);
      WEFT_CHECK(ranges[at].size == rule.factors[at].size, "box_of",
                 "factor {} is cut inside of a dim", rule.factors[at].name);
      inner *= rule.factors[at].size;
    }
    const CutPiece& range = ranges[static_cast<size_t>(dims[i][0])];
    box.begin[i] = range.begin * inner;
    box.extent[i] = range.size * inner;
  }
  return box;
}

/// Copies between a tensor and the tensor of one of its boxes.
void copy_box(std::byte* whole, const Shape& shape, const Box& box, std::byte* piece, int64_t size,
              bool to_piece) {
  const int64_t count = num_elements(box.extent);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t dim = shape.size(); dim-- > 0;) {
      at += (box.begin[dim] + rest % box.extent[dim]) * stride;
      rest /= box.extent[dim];
      stride *= shape[dim];
    }
    std::byte* of_whole = whole + at * size;
    std::byte* of_piece = piece + i * size;
    std::memcpy(to_piece ? of_piece : of_whole, to_piece ? of_whole : of_piece,
                static_cast<size_t>(size));
  }
}

HostTensor cut(HostTensor whole, const Box& box) {
  HostTensor piece(TensorType{whole.type.dtype, box.extent});
  copy_box(whole.bytes.data(), whole.type.shape, box, piece.bytes.data(),
           dtype_size(whole.type.dtype), true);
  return piece;
}

void paste(HostTensor& whole, const Box& box, HostTensor piece) {
  copy_box(whole.bytes.data(), whole.type.shape, box, piece.bytes.data(),
           dtype_size(whole.type.dtype), false);
}

/// Adds `part` to a partial result.
void combine(HostTensor& total, const HostTensor& part, Reduction reduction) {
  for (int64_t i = 0; i < total.size(); ++i) {
    const double a = total.get(i), b = part.get(i);
    if (reduction == Reduction::sum) {
      total.set(i, a + b);
      continue;
    }
    const double most = std::max(a, b);
    const bool none = most == -std::numeric_limits<double>::infinity();
    total.set(i, none ? most : most + std::log(std::exp(a - most) + std::exp(b - most)));
  }
}

HostTensor neutral(const TensorType& type, Reduction reduction) {
  HostTensor tensor(type);
  if (reduction == Reduction::sum) return tensor;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, -std::numeric_limits<double>::infinity());
  }
  return tensor;
}

std::vector<HostTensor> run(const OpCase& op_case, const Attrs& attrs,
                            const std::vector<HostTensor>& inputs, Backend& ref) {
  KernelRun result = run_kernel(ref, make_spec(op_case.op, attrs, inputs), inputs);
  WEFT_CHECK(result.faults.empty(), "pieces", "{}: {}", op_case.name, result.faults[0]);
  return std::move(result.outputs);
}

/// One recursion level per cut factor.
class PieceRun {
 public:
  PieceRun(const RuledCase& ruled, const std::vector<FactorCut>& cuts, Backend& ref)
      : ruled_(ruled), rule_(ruled.rule), cuts_(cuts), ref_(ref) {
    for (const Factor& factor : rule_.factors) ranges_.push_back({0, factor.size});
    first_.assign(rule_.factors.size(), true);
  }

  std::vector<HostTensor> outputs(size_t level = 0) {
    if (level == cuts_.size()) return local();
    const auto at = static_cast<size_t>(cuts_[level].factor);
    const CutPiece all = ranges_[at];
    std::vector<HostTensor> joined;
    for (const CutPiece& piece : cuts_[level].pieces) {
      first_[at] = &piece == &cuts_[level].pieces.front();
      ranges_[at] = piece;
      const std::vector<HostTensor> part = outputs(level + 1);
      join(joined, part, cuts_[level].factor, all);
    }
    first_[at] = true;
    ranges_[at] = all;
    return joined;
  }

  const std::string& fault() const { return fault_; }

 private:
  /// What one rank computes.
  std::vector<HostTensor> local() {
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < ruled_.inputs.size(); ++i) {
      const HostTensor& whole = ruled_.inputs[i];
      const bool skipped = !whole.present() || passed_by_another(i);
      inputs.push_back(skipped
                           ? HostTensor()
                           : cut(whole, box_of(rule_, rule_.inputs[i], whole.type.shape, ranges_)));
    }
    Attrs attrs = ruled_.op_case->attrs;
    const OpDef& def = op_def(ruled_.op_case->op);
    if (def.localize != nullptr) def.localize(attrs, rule_, ranges_);
    std::vector<HostTensor> outputs = run(*ruled_.op_case, attrs, inputs, ref_);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorType& whole = ruled_.outputs[i].type;
      if (!whole.present()) continue;
      const Box box = box_of(rule_, rule_.outputs[i], whole.shape, ranges_);
      if (outputs[i].type != TensorType{whole.dtype, box.extent}) {
        fault_ = fmt::format("output {} of a piece is {}, expected {}", i,
                             shape_text(outputs[i].type.shape), shape_text(box.extent));
      }
    }
    return outputs;
  }

  /// An input that is added once, and another piece of a reduce factor is the one that does.
  bool passed_by_another(size_t input) const {
    if (!contains(rule_.addends, input)) return false;
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      if (rule_.factors[f].kind == FactorKind::reduce && !first_[f] &&
          !has_factor(rule_.inputs[input], static_cast<int>(f))) {
        return true;
      }
    }
    return false;
  }

  void join(std::vector<HostTensor>& joined, const std::vector<HostTensor>& part, int factor,
            const CutPiece& all) {
    const Factor& of = rule_.factors[static_cast<size_t>(factor)];
    const bool begin = joined.empty();
    if (begin) joined.resize(part.size());
    if (!fault_.empty()) return;
    Ranges outer = ranges_;
    outer[static_cast<size_t>(factor)] = all;
    for (size_t i = 0; i < part.size(); ++i) {
      const ShardingRule::Dims& dims = rule_.outputs[i];
      if (!part[i].present()) continue;
      const Shape& shape = ruled_.outputs[i].type.shape;
      const Box to = box_of(rule_, dims, shape, outer);
      const TensorType type{part[i].type.dtype, to.extent};
      if (has_factor(dims, factor)) {
        if (begin) joined[i] = HostTensor(type);
        Box box = box_of(rule_, dims, shape, ranges_);
        for (size_t dim = 0; dim < box.begin.size(); ++dim) box.begin[dim] -= to.begin[dim];
        paste(joined[i], box, part[i]);
      } else if (of.kind == FactorKind::reduce) {
        if (begin) joined[i] = neutral(type, of.reduction);
        combine(joined[i], part[i], of.reduction);
      } else if (begin) {
        joined[i] = part[i];
      } else if (joined[i].bytes != part[i].bytes) {
        fault_ = fmt::format("output {} differs between pieces of factor {}", i, of.name);
      }
    }
  }

  const RuledCase& ruled_;
  const ShardingRule& rule_;
  const std::vector<FactorCut>& cuts_;
  Backend& ref_;
  Ranges ranges_;
  std::vector<bool> first_;  // this is the first piece of the factor
  std::string fault_;
};

std::string compare(const RuledCase& ruled, const std::vector<HostTensor>& joined,
                    const std::vector<bool>& summed) {
  for (size_t i = 0; i < joined.size(); ++i) {
    if (!ruled.outputs[i].present()) continue;
    const Tolerance tolerance = summed[i] ? Tolerance::sum : Tolerance::exact;
    const std::string text = difference(joined[i], ruled.outputs[i], tolerance, DType::f64);
    if (!text.empty()) {
      return fmt::format("output {}: {}", op_def(ruled.op_case->op).outputs[i], text);
    }
  }
  return "";
}

}  // namespace

bool has_factor(const ShardingRule::Dims& dims, int factor) {
  return std::any_of(dims.begin(), dims.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

RuledCase ruled_case(const OpCase& op_case, Backend& ref) {
  RuledCase ruled;
  ruled.op_case = &op_case;
  ruled.inputs = make_inputs(op_case, DType::f64, ref);
  const KernelSpec spec = make_spec(op_case.op, op_case.attrs, ruled.inputs);
  ruled.rule = op_def(op_case.op).rule(spec.inputs, spec.outputs, op_case.attrs);
  ruled.outputs = run_kernel(ref, spec, ruled.inputs).outputs;
  return ruled;
}

std::string check_pieces(const RuledCase& ruled, const std::vector<FactorCut>& cuts, Backend& ref) {
  PieceRun run(ruled, cuts, ref);
  const std::vector<HostTensor> joined = run.outputs();
  if (!run.fault().empty()) return run.fault();
  std::vector<bool> summed;
  for (const ShardingRule::Dims& dims : ruled.rule.outputs) {
    summed.push_back(std::any_of(cuts.begin(), cuts.end(), [&](const FactorCut& cut) {
      return ruled.rule.factors[static_cast<size_t>(cut.factor)].kind == FactorKind::reduce &&
             !has_factor(dims, cut.factor);
    }));
  }
  return compare(ruled, joined, summed);
}

std::string check_flat(const RuledCase& ruled, const std::vector<CutPiece>& pieces, Backend& ref) {
  const ShardingRule& rule = ruled.rule;
  const auto flat = [&](const HostTensor& tensor) {
    return HostTensor({tensor.type.dtype, {tensor.size()}}, tensor.values());
  };
  std::vector<HostTensor> joined;
  std::vector<bool> summed;
  for (size_t i = 0; i < ruled.outputs.size(); ++i) {
    joined.emplace_back(ruled.outputs[i].type);
    summed.push_back(rule.outputs[i] != rule.inputs[0]);
  }
  for (const CutPiece& piece : pieces) {
    const Box box{{piece.begin}, {piece.size}};
    std::vector<HostTensor> inputs = ruled.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].present() && rule.inputs[i] == rule.inputs[0]) {
        inputs[i] = cut(flat(inputs[i]), box);
      }
    }
    const std::vector<HostTensor> part = run(*ruled.op_case, ruled.op_case->attrs, inputs, ref);
    for (size_t i = 0; i < part.size(); ++i) {
      if (!part[i].present()) continue;
      if (summed[i]) {
        combine(joined[i], part[i], Reduction::sum);
      } else if (part[i].type.shape != box.extent) {
        return fmt::format("output {} of a flat piece is {}", i, shape_text(part[i].type.shape));
      } else {
        for (int64_t j = 0; j < piece.size; ++j) joined[i].set(piece.begin + j, part[i].get(j));
      }
    }
  }
  return compare(ruled, joined, summed);
}

std::string check_linear(const RuledCase& ruled, int ways, Backend& ref) {
  const RngStream random(17, ruled.op_case->name);
  std::vector<HostTensor> rest = ruled.inputs;  // what is left of the inputs
  std::vector<HostTensor> joined;
  for (const HostTensor& output : ruled.outputs) joined.emplace_back(output.type);
  uint64_t draw = 0;
  for (int way = 0; way < ways; ++way) {
    std::vector<HostTensor> inputs = rest;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!splits(ruled.rule, i)) {
        // Whole in every part, but what is added once is added once.
        if (way > 0 && contains(ruled.rule.addends, i)) inputs[i] = HostTensor();
        continue;
      }
      if (way + 1 == ways) continue;
      for (int64_t j = 0; j < inputs[i].size(); ++j) {
        inputs[i].set(j, rest[i].get(j) * static_cast<double>(random.below(draw++, 1000)) / 1000);
        rest[i].set(j, rest[i].get(j) - inputs[i].get(j));
      }
    }
    const std::vector<HostTensor> part = run(*ruled.op_case, ruled.op_case->attrs, inputs, ref);
    for (size_t i = 0; i < part.size(); ++i) combine(joined[i], part[i], Reduction::sum);
  }
  return compare(ruled, joined, std::vector<bool>(joined.size(), true));
}

}  // namespace weft::test
