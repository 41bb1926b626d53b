// Every fused operator against its own definition in plainer operators, in f64 on ref.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/cases/cases.h"
#include "tests/support/interpret.h"

namespace weft::test {
namespace {

std::vector<const OpCase*> fused_cases() {
  std::vector<const OpCase*> cases;
  for (const OpCase& op_case : all_cases()) {
    if (op_def(op_case.op).expand != nullptr) cases.push_back(&op_case);
  }
  return cases;
}

class Expand : public testing::TestWithParam<const OpCase*> {};

TEST_P(Expand, EqualsTheFusedOperator) {
  const OpCase& op_case = *GetParam();
  const std::unique_ptr<Backend> ref = make_backend("ref", {});
  const std::vector<HostTensor> inputs = make_inputs(op_case, DType::f64, *ref);
  Graph graph;
  Feeds feeds;
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = fmt::format("input{}", i);
    ids.push_back(inputs[i].present() ? graph.add_input(name, inputs[i].type) : kNoValue);
    if (inputs[i].present()) feeds[name] = inputs[i];
  }
  const std::vector<ValueId> fused = graph.add_node(op_case.op, ids, op_case.attrs);
  const Node node = graph.node(0);
  const std::vector<ValueId> expanded = op_def(op_case.op).expand(graph, node);
  verify_graph(graph);
  ASSERT_EQ(expanded.size(), fused.size());
  const std::vector<HostTensor> values = interpret(graph, *ref, feeds);
  for (size_t i = 0; i < fused.size(); ++i) {
    ASSERT_NE(fused[i], expanded[i]);
    EXPECT_EQ(difference(values[static_cast<size_t>(expanded[i])],
                         values[static_cast<size_t>(fused[i])], Tolerance::fused, DType::f64),
              "")
        << "output " << op_def(op_case.op).outputs[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Expand, testing::ValuesIn(fused_cases()),
                         [](const auto& param_info) { return param_info.param->name; });

TEST(ExpandTable, FusedLossesOwnADefinition) {
  EXPECT_NE(op_def(OpKind::linear_cross_entropy).expand, nullptr);
  EXPECT_NE(op_def(OpKind::linear_cross_entropy_train).expand, nullptr);
}

}  // namespace
}  // namespace weft::test
