// The one case table of operators: shapes, values and tolerance class of every operator. The
// suites conformance (backends against ref), gradcheck (gradients against differences) and expand
// (fused operators against their definition) run over it, so that a case is written once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/host_tensor.h"
#include "weft/backend/backend.h"
#include "weft/ir/op_def.h"
#include "weft/ops/op_kind.h"

namespace weft::test {

/// Dtype of an operand: fixed, or relative to the compute dtype of the run. When the compute dtype
/// is f64, `param` and `slot` are too; else they are f32 and bf16.
enum class Of : uint8_t { none, compute, param, slot, f64, i32, i64 };

/// How close a backend must be to ref; the numbers are in tolerance.cpp.
enum class Tolerance : uint8_t {
  exact,        // equal bits
  elementwise,  // a few roundings per element
  sum,          // one long sum per element, in f32 or wider
  fused,        // several products with intermediate values that may have the compute dtype
};

struct Fill {
  enum class Kind : uint8_t { normal, ints, list, forward } kind = Kind::normal;
  double a = 0, b = 1;         // normal: mean, deviation; ints: [a, b)
  std::vector<double> values;  // list
  OpKind op{};                 // forward: output `output` of `op` on inputs `from` of this case
  std::vector<int> from;       //   and its sources behind them (-1 = absent), with its attributes;
  int output = 0;              //   made by ref
};

struct Operand {
  Of of = Of::none;
  Shape shape;
  Fill fill;
};

struct OpCase {
  std::string name;  // letters, digits and _, unique; starts with the operator's name
  OpKind op{};
  Attrs attrs;
  std::vector<Operand> inputs;
  Tolerance tolerance = Tolerance::sum;
  std::vector<int> differentiable = {};  // inputs that gradcheck perturbs
  int cotangent = -1;  // input that is the gradient arriving at `output`, for losses that take one
  int output = 0;      // the output that gradcheck differentiates
  std::vector<Operand> sources = {};  // operands that only forward ones are made from
};

// Short forms for the tables.
Operand absent();
Operand compute(Shape shape, double deviation = 1, double mean = 0);
Operand param(Shape shape, double deviation = 1, double mean = 0);
/// A moment of an optimizer that is kept in 16 bits.
Operand slot(Shape shape, double deviation = 1, double mean = 0);
Operand param_list(const std::vector<double>& values);
Operand ints(Shape shape, int64_t low, int64_t high);
Operand i32_list(Shape shape, const std::vector<double>& values);
Operand i64_list(const std::vector<double>& values);
Operand f64_list(const std::vector<double>& values);
/// `of` and shape are those of the output.
Operand forward(Of of, Shape shape, OpKind op, std::vector<int> from, int output);

/// Every case, in the order of the family files.
const std::vector<OpCase>& all_cases();

/// The inputs of a case for compute dtype `dtype`. Deterministic: drawn by name of the case and
/// operand, the same values (rounded) for every dtype. `ref` computes forward operands.
std::vector<HostTensor> make_inputs(const OpCase& op_case, DType dtype, Backend& ref);

/// Why `got` is not `expected` under a tolerance class, or "" when it is. `compute` is the compute
/// dtype of the run.
std::string difference(const HostTensor& got, const HostTensor& expected, Tolerance tolerance,
                       DType compute);

// One function per family file.
std::vector<OpCase> attention_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> expert_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> rope_cases();
std::vector<OpCase> slice_cases();
std::vector<OpCase> update_cases();
std::vector<OpCase> vocab_loss_cases();

}  // namespace weft::test
