#include "tests/cases/cases.h"

#include <fmt/core.h>

#include "tests/support/run_kernel.h"
#include "weft/base/check.h"
#include "weft/base/rng.h"

namespace weft::test {
namespace {

DType dtype_of(Of of, DType compute_dtype) {
  switch (of) {
    case Of::none: return DType::none;
    case Of::compute: return compute_dtype;
    case Of::param: return compute_dtype == DType::f64 ? DType::f64 : DType::f32;
    case Of::slot: return compute_dtype == DType::f64 ? DType::f64 : DType::bf16;
    case Of::f64: return DType::f64;
    case Of::i32: return DType::i32;
    case Of::i64: return DType::i64;
  }
  return DType::none;
}

Operand list(Of of, Shape shape, const std::vector<double>& values) {
  Operand operand{of, std::move(shape), {}};
  operand.fill.kind = Fill::Kind::list;
  operand.fill.values = values;
  return operand;
}

Shape flat(const std::vector<double>& values) { return {static_cast<int64_t>(values.size())}; }

/// Draws a normal or integer operand.
HostTensor draw(const std::string& name, size_t index, const Operand& operand, DType dtype) {
  const Fill& fill = operand.fill;
  const RngStream stream(7, fmt::format("{}/{}", name, index));
  HostTensor tensor(TensorType{dtype, operand.shape});
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    if (fill.kind == Fill::Kind::ints) {
      tensor.set(i, fill.a + static_cast<double>(
                                 stream.below(at, static_cast<uint64_t>(fill.b - fill.a))));
    } else {
      tensor.set(i, fill.a + fill.b * stream.normal(at));
    }
  }
  return tensor;
}

}  // namespace

Operand absent() { return {}; }

Operand compute(Shape shape, double deviation, double mean) {
  Operand operand{Of::compute, std::move(shape), {}};
  operand.fill.a = mean;
  operand.fill.b = deviation;
  return operand;
}

Operand param(Shape shape, double deviation, double mean) {
  Operand operand = compute(std::move(shape), deviation, mean);
  operand.of = Of::param;
  return operand;
}

Operand slot(Shape shape, double deviation, double mean) {
  Operand operand = compute(std::move(shape), deviation, mean);
  operand.of = Of::slot;
  return operand;
}

Operand param_list(const std::vector<double>& values) {
  return list(Of::param, flat(values), values);
}

Operand ints(Shape shape, int64_t low, int64_t high) {
  Operand operand{Of::i32, std::move(shape), {}};
  operand.fill.kind = Fill::Kind::ints;
  operand.fill.a = static_cast<double>(low);
  operand.fill.b = static_cast<double>(high);
  return operand;
}

Operand i32_list(Shape shape, const std::vector<double>& values) {
  return list(Of::i32, std::move(shape), values);
}
Operand i64_list(const std::vector<double>& values) { return list(Of::i64, flat(values), values); }
Operand f64_list(const std::vector<double>& values) { return list(Of::f64, flat(values), values); }

Operand forward(Of of, Shape shape, OpKind op, std::vector<int> from, int output) {
  Operand operand{of, std::move(shape), {}};
  operand.fill.kind = Fill::Kind::forward;
  operand.fill.op = op;
  operand.fill.from = std::move(from);
  operand.fill.output = output;
  return operand;
}

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    for (const auto& family : {attention_cases(), elementwise_cases(), embedding_cases(),
                               expert_cases(), loss_cases(), matmul_cases(), norm_cases(),
                               rope_cases(), slice_cases(), update_cases(), vocab_loss_cases()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return cases;
}

std::vector<HostTensor> make_inputs(const OpCase& op_case, DType dtype, Backend& ref) {
  std::vector<Operand> operands = op_case.inputs;
  operands.insert(operands.end(), op_case.sources.begin(), op_case.sources.end());
  std::vector<HostTensor> inputs(operands.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = operands[i];
    const DType own = dtype_of(operand.of, dtype);
    if (operand.of == Of::none || operand.fill.kind == Fill::Kind::forward) continue;
    inputs[i] = operand.fill.kind == Fill::Kind::list
                    ? HostTensor({own, operand.shape}, operand.fill.values)
                    : draw(op_case.name, i, operand, own);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = operands[i];
    if (operand.of == Of::none || operand.fill.kind != Fill::Kind::forward) continue;
    std::vector<HostTensor> sources;
    for (const int from : operand.fill.from) {
      sources.push_back(from < 0 ? HostTensor() : inputs[static_cast<size_t>(from)]);
    }
    const KernelSpec spec = make_spec(operand.fill.op, op_case.attrs, sources);
    inputs[i] = run_kernel(ref, spec, sources).outputs[static_cast<size_t>(operand.fill.output)];
    WEFT_CHECK((inputs[i].type == TensorType{dtype_of(operand.of, dtype), operand.shape}),
               "make_inputs", "{}: operand {} has {}", op_case.name, i,
               shape_text(inputs[i].type.shape));
  }
  inputs.resize(op_case.inputs.size());
  return inputs;
}

}  // namespace weft::test
