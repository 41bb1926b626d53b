// The operator suite: what every sharding rule promises, for every case of the table, every factor
// that may be cut, even, uneven and empty pieces, and pairs of factors.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "tests/sharding/operator_pieces.h"
#include "weft/base/rng.h"
#include "weft/ir/graph.h"

namespace weft::test {
namespace {

std::vector<const OpCase*> every_case() {
  std::vector<const OpCase*> cases;
  for (const OpCase& op_case : all_cases()) {
    if (op_case.attrs.contains("num_experts")) continue;  // a piece already
    cases.push_back(&op_case);
  }
  return cases;
}

const OpCase& case_named(std::string_view name) {
  for (const OpCase& op_case : all_cases()) {
    if (op_case.name == name) return op_case;
  }
  throw std::out_of_range(std::string(name));
}

std::vector<CutPiece> even(int64_t size, int ways) {
  std::vector<CutPiece> pieces;
  for (int i = 0; i < ways; ++i) pieces.push_back(cut_piece(size, 1, ways, i));
  return pieces;
}

/// Cut at random places.
std::vector<CutPiece> uneven(int64_t size, int ways, const std::string& name) {
  const RngStream random(13, name);
  std::vector<int64_t> ends = {size};
  for (int i = 1; i < ways; ++i) {
    ends.push_back(static_cast<int64_t>(
        random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(size + 1))));
  }
  std::sort(ends.begin(), ends.end());
  std::vector<CutPiece> pieces;
  for (int64_t begin = 0; const int64_t end : ends) {
    pieces.push_back({begin, end - begin});
    begin = end;
  }
  return pieces;
}

std::vector<int> cut_factors(const ShardingRule& rule) {
  std::vector<int> factors;
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    if (rule.factors[i].kind != FactorKind::whole) factors.push_back(static_cast<int>(i));
  }
  return factors;
}

class OperatorSuite : public testing::TestWithParam<const OpCase*> {
 protected:
  void TearDown() override {
    if (!HasFailure()) return;
    fmt::print("rerun: weft_operator_suite_test --gtest_filter=*/{}\n", GetParam()->name);
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref", {});
  RuledCase ruled_ = ruled_case(*GetParam(), *ref_);
};

TEST_P(OperatorSuite, PiecesOfEveryFactorGiveTheWhole) {
  for (const int factor : cut_factors(ruled_.rule)) {
    const Factor& of = ruled_.rule.factors[static_cast<size_t>(factor)];
    for (const int ways : {2, 3}) {
      const std::string what = fmt::format("factor {} of {} in {}", of.name, of.size, ways);
      EXPECT_EQ(check_pieces(ruled_, {{factor, even(of.size, ways)}}, *ref_), "") << what;
      const auto pieces = uneven(of.size, ways, GetParam()->name + what);
      EXPECT_EQ(check_pieces(ruled_, {{factor, pieces}}, *ref_), "") << what << " at random";
    }
  }
}

TEST_P(OperatorSuite, PiecesOfEveryTwoFactorsGiveTheWhole) {
  const std::vector<int> factors = cut_factors(ruled_.rule);
  for (const int a : factors) {
    for (const int b : factors) {
      if (a >= b) continue;
      const Factor& of_a = ruled_.rule.factors[static_cast<size_t>(a)];
      const Factor& of_b = ruled_.rule.factors[static_cast<size_t>(b)];
      EXPECT_EQ(check_pieces(ruled_, {{a, even(of_a.size, 2)}, {b, even(of_b.size, 2)}}, *ref_), "")
          << of_a.name << " and " << of_b.name;
    }
  }
}

TEST_P(OperatorSuite, FlatPiecesGiveTheWhole) {
  if (!ruled_.rule.flat) return;
  const int64_t size = ruled_.inputs[0].size();
  for (const int ways : {2, 3}) {
    EXPECT_EQ(check_flat(ruled_, even(size, ways), *ref_), "") << ways;
    EXPECT_EQ(check_flat(ruled_, uneven(size, ways, GetParam()->name), *ref_), "") << ways;
  }
}

TEST_P(OperatorSuite, PartialInputsOfALinearOperatorGivePartialOutputs) {
  if (!ruled_.rule.linear || !is_floating(ruled_.inputs[0].type.dtype)) return;
  for (const int ways : {2, 3}) EXPECT_EQ(check_linear(ruled_, ways, *ref_), "") << ways;
}

INSTANTIATE_TEST_SUITE_P(Ops, OperatorSuite, testing::ValuesIn(every_case()),
                         [](const auto& param_info) { return param_info.param->name; });

TEST(OperatorSuiteTable, EveryOperatorHasARule) {
  for (int i = 0; i < kNumOps; ++i) {
    const OpDef& def = op_def(static_cast<OpKind>(i));
    EXPECT_EQ(def.rule == nullptr, def.collective || def.transfer) << def.name;
  }
}

/// Does a cut of this factor leave an output partial to which the input is added?
bool added_once(const RuledCase& ruled, const Factor& factor, int index, int input) {
  return factor.kind == FactorKind::reduce && factor.size > 1 &&
         ruled.inputs[static_cast<size_t>(input)].present() &&
         !has_factor(ruled.rule.inputs[static_cast<size_t>(input)], index);
}

// What the suite proves, it proves with factors that really have two pieces.
TEST(OperatorSuiteTable, EveryFactorAndEveryAddendIsCutByACase) {
  const std::unique_ptr<Backend> ref = make_backend("ref", {});
  std::map<std::string, bool> cut, added;
  for (const OpCase* op_case : every_case()) {
    const RuledCase ruled = ruled_case(*op_case, *ref);
    const std::string name(op_name(op_case->op));
    for (const int index : cut_factors(ruled.rule)) {
      const Factor& factor = ruled.rule.factors[static_cast<size_t>(index)];
      cut[name + " factor " + factor.name] |= factor.size > 1 && ruled.outputs[0].size() > 0;
      for (const int input : ruled.rule.addends) {
        added[fmt::format("{} input {}", name, input)] |= added_once(ruled, factor, index, input);
      }
    }
  }
  EXPECT_GT(cut.size(), 60u);
  EXPECT_GT(added.size(), 5u);
  for (const auto& [what, seen] : cut) EXPECT_TRUE(seen) << what;
  for (const auto& [what, seen] : added) EXPECT_TRUE(seen) << what;
}

// The suite sees wrong rules.
class WrongRule : public testing::Test {
 protected:
  std::string with(std::string_view name, const std::string& factor_name,
                   void (*spoil)(ShardingRule& rule, Factor& factor)) {
    RuledCase ruled = ruled_case(case_named(name), *ref_);
    for (size_t i = 0; i < ruled.rule.factors.size(); ++i) {
      Factor& factor = ruled.rule.factors[i];
      if (factor.name != factor_name) continue;
      const std::vector<FactorCut> cuts = {{static_cast<int>(i), even(factor.size, 2)}};
      if (factor.kind != FactorKind::whole) {
        EXPECT_EQ(check_pieces(ruled, cuts, *ref_), "");
      }
      spoil(ruled.rule, factor);
      return check_pieces(ruled, cuts, *ref_);
    }
    return "";
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref", {});
};

TEST_F(WrongRule, AddendPassedTwice) {
  EXPECT_NE(with("matmul_9x64x33_n_bias", "h", [](auto& rule, auto&) { rule.addends.clear(); }),
            "");
}

TEST_F(WrongRule, WrongReduction) {
  EXPECT_NE(
      with("row_lse_2x3x7", "v", [](auto&, auto& factor) { factor.reduction = Reduction::sum; }),
      "");
}

TEST_F(WrongRule, WholeFactorThatIsCut) {
  EXPECT_NE(with("rmsnorm_5x8", "h", [](auto&, auto& factor) { factor.kind = FactorKind::pass; }),
            "");
}

TEST_F(WrongRule, PassFactorThatSums) {
  EXPECT_NE(
      with("bias_grad_9x64x33_t", "b", [](auto&, auto& factor) { factor.kind = FactorKind::pass; }),
      "");
}

TEST_F(WrongRule, PieceThatDoesNotKnowWhereItBegins) {
  RuledCase ruled = ruled_case(case_named("dropout_2x9x33_p90_residual"), *ref_);
  for (Factor& factor : ruled.rule.factors) {
    if (factor.name == "h") factor.name = "x";  // localize does not find it
  }
  EXPECT_NE(check_pieces(ruled, {{2, even(33, 2)}}, *ref_), "");
}

}  // namespace
}  // namespace weft::test
