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

/// The operator and its expansion on the inputs of a case give the same outputs.
void expect_equal_to_expansion(const OpCase& op_case) {
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

class Expand : public testing::TestWithParam<const OpCase*> {};

TEST_P(Expand, EqualsTheFusedOperator) { expect_equal_to_expansion(*GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ops, Expand, testing::ValuesIn(fused_cases()),
                         [](const auto& param_info) { return param_info.param->name; });

// Positions are cut in chunks of about chunk_rows rows: single positions, an uneven last chunk, one
// chunk, and more rows than there are.
TEST(ExpandChunks, EverySizeGivesTheFusedLoss) {
  const OpCase* fused[] = {nullptr, nullptr, nullptr};
  for (const OpCase& op_case : all_cases()) {
    if (op_case.name == "linear_cross_entropy_2x17x257_t") fused[0] = &op_case;
    if (op_case.name == "linear_cross_entropy_train_2x17x257_t_acc") fused[1] = &op_case;
    if (op_case.name == "linear_cross_entropy_train_3x5x257_some_ignored_n") fused[2] = &op_case;
  }
  for (const OpCase* found : fused) {
    ASSERT_NE(found, nullptr);
    for (const int64_t chunk_rows : {1, 2, 3, 5, 8, 14, 34, 1000}) {
      SCOPED_TRACE(fmt::format("{} in chunks of {}", found->name, chunk_rows));
      OpCase op_case = *found;
      op_case.attrs.set("chunk_rows", chunk_rows);
      expect_equal_to_expansion(op_case);
    }
  }
}

TEST(ExpandTable, FusedLossesOwnADefinition) {
  EXPECT_NE(op_def(OpKind::cross_entropy).expand, nullptr);
  EXPECT_NE(op_def(OpKind::linear_cross_entropy).expand, nullptr);
  EXPECT_NE(op_def(OpKind::linear_cross_entropy_train).expand, nullptr);
}

}  // namespace
}  // namespace weft::test
