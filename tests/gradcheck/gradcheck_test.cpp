// The gradient of every differentiable operator, in f64 on ref: the directional derivative of a
// random weighted sum of the output, from the graph that OpDef::grad builds, against central
// differences.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/cases/cases.h"
#include "tests/support/interpret.h"
#include "weft/base/rng.h"

namespace weft::test {
namespace {

constexpr double kStep = 1e-5;
constexpr double kRelative = 1e-6;

HostTensor random_like(const TensorType& type, const std::string& name) {
  const RngStream stream(11, name);
  HostTensor tensor(type);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.set(i, stream.normal(static_cast<uint64_t>(i)));
  return tensor;
}

double dot(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.get(i) * b.get(i);
  return sum;
}

std::vector<const OpCase*> differentiable_cases() {
  std::vector<const OpCase*> cases;
  for (const OpCase& op_case : all_cases()) {
    if (!op_case.differentiable.empty()) cases.push_back(&op_case);
  }
  return cases;
}

/// The operator and its gradient as one graph over the inputs of a case.
class GradGraph {
 public:
  GradGraph(const OpCase& op_case, const std::vector<HostTensor>& inputs) {
    std::vector<ValueId> ids;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ids.push_back(inputs[i].present() ? graph.add_input(input_name(i), inputs[i].type)
                                        : kNoValue);
    }
    const std::vector<ValueId> outputs = graph.add_node(op_case.op, ids, op_case.attrs);
    const auto differentiated = static_cast<size_t>(op_case.output);
    output = outputs[differentiated];
    std::vector<ValueId> output_grads(outputs.size(), kNoValue);
    output_grads[differentiated] = op_case.cotangent >= 0
                                       ? ids[static_cast<size_t>(op_case.cotangent)]
                                       : graph.add_input("cotangent", graph.type(output));
    const Node node = graph.node(0);  // a copy: the gradient adds nodes
    grads = op_def(op_case.op).grad(graph, node, output_grads);
  }

  static std::string input_name(size_t i) { return fmt::format("input{}", i); }

  Graph graph;
  ValueId output = kNoValue;
  std::vector<ValueId> grads;
};

class GradCheck : public testing::TestWithParam<const OpCase*> {
 protected:
  void TearDown() override {
    if (!HasFailure()) return;
    fmt::print("rerun: weft_gradcheck_test --gtest_filter=*.Directional/{}\n", GetParam()->name);
  }
};

TEST_P(GradCheck, Directional) {
  const OpCase& op_case = *GetParam();
  const std::unique_ptr<Backend> ref = make_backend("ref", {});
  const std::vector<HostTensor> inputs = make_inputs(op_case, DType::f64, *ref);
  GradGraph with_grad(op_case, inputs);
  verify_graph(with_grad.graph);
  ASSERT_EQ(with_grad.grads.size(), inputs.size());

  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].present()) feeds[GradGraph::input_name(i)] = inputs[i];
  }
  const HostTensor cotangent =
      op_case.cotangent >= 0 ? inputs[static_cast<size_t>(op_case.cotangent)]
                             : random_like(with_grad.graph.type(with_grad.output), op_case.name);
  if (op_case.cotangent < 0) feeds["cotangent"] = cotangent;
  const std::vector<HostTensor> values = interpret(with_grad.graph, *ref, feeds);

  Graph forward;  // the operator alone, for the differences
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ids.push_back(inputs[i].present() ? forward.add_input(GradGraph::input_name(i), inputs[i].type)
                                      : kNoValue);
  }
  const ValueId output =
      forward.add_node(op_case.op, ids, op_case.attrs)[static_cast<size_t>(op_case.output)];
  const auto objective = [&](size_t input, const HostTensor& direction, double step) {
    Feeds moved = feeds;
    HostTensor& tensor = moved[GradGraph::input_name(input)];
    for (int64_t i = 0; i < tensor.size(); ++i)
      tensor.set(i, tensor.get(i) + step * direction.get(i));
    return dot(cotangent, interpret(forward, *ref, moved)[static_cast<size_t>(output)]);
  };

  for (const int index : op_case.differentiable) {
    const auto at = static_cast<size_t>(index);
    ASSERT_NE(with_grad.grads[at], kNoValue) << "input " << index;
    const HostTensor& grad = values[static_cast<size_t>(with_grad.grads[at])];
    ASSERT_EQ(grad.type, inputs[at].type) << "input " << index;
    const HostTensor direction =
        random_like(inputs[at].type, fmt::format("{}/direction{}", op_case.name, index));
    const double analytic = dot(grad, direction);
    // Relative to the input: norms of tiny or huge inputs need tiny or huge steps.
    const double size = std::sqrt(dot(inputs[at], inputs[at]) /
                                  std::max<double>(1, static_cast<double>(inputs[at].size())));
    const double step = kStep * (size > 0 ? size : 1);
    const double numeric =
        (objective(at, direction, step) - objective(at, direction, -step)) / (2 * step);
    const double typical = std::sqrt(dot(grad, grad));  // |analytic| of a usual direction
    EXPECT_NEAR(analytic, numeric, kRelative * std::max(std::abs(analytic), typical))
        << "input " << op_def(op_case.op).inputs[at];
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GradCheck, testing::ValuesIn(differentiable_cases()),
                         [](const auto& param_info) { return param_info.param->name; });

TEST(GradCheckTable, EveryOperatorIsCheckedOrSaysWhyNot) {
  std::set<OpKind> checked;
  for (const OpCase* op_case : differentiable_cases()) checked.insert(op_case->op);
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpKind>(i);
    EXPECT_EQ(op_def(op).grad != nullptr, checked.contains(op)) << op_name(op);
    EXPECT_EQ(op_def(op).grad == nullptr, !op_def(op).no_grad.empty()) << op_name(op);
  }
}

}  // namespace
}  // namespace weft::test
