// Strategies that users give: patterns, tuples, and every refusal.
#include "weft/shard/entries.h"

#include <gtest/gtest.h>

#include <functional>

#include "weft/base/error.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

const Mesh kMesh({{"data", 2}, {"op", 2}});

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_refused(const std::function<void()>& call, const std::vector<std::string>& parts) {
  try {
    call();
    FAIL() << "was not refused: " << parts[0];
  } catch (const UsageError& error) {
    for (const std::string& part : parts) EXPECT_PRED2(contains, error.what(), part);
  }
}

ShardStrategy tuple(const std::string& strategy) { return {"*.up_proj", {}, strategy}; }

std::vector<ShardEntry> parse(const ShardStrategy& strategy) {
  return parse_entries({strategy}, kMesh);
}

TEST(Entries, PatternsMatchModuleNames) {
  EXPECT_TRUE(matches_module("lm_head", "lm_head"));
  EXPECT_FALSE(matches_module("lm_head", "lm_head2"));
  EXPECT_FALSE(matches_module("lm_head", "model.lm_head"));
  EXPECT_TRUE(matches_module("model.layers.*.mlp.up_proj", "model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(matches_module("model.layers.*.mlp.up_proj", "model.layers.11.mlp.gate_proj"));
  EXPECT_TRUE(matches_module("*", "anything.at.all"));
  EXPECT_TRUE(matches_module("*proj", "a.proj.b.proj"));
  EXPECT_FALSE(matches_module("*.proj", "proj"));
  EXPECT_TRUE(matches_module("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches_module("a*b*c", "aXbYbZd"));
  // The pieces of a fused tensor are one module.
  EXPECT_TRUE(matches_module("transformer.h.*.attn.c_attn", "transformer.h.0.attn.c_attn#q"));
  EXPECT_FALSE(matches_module("*#q", "transformer.h.0.attn.c_attn#q"));
}

TEST(Entries, TupleFormIsTheListForm) {
  const ShardStrategy lists{"*.up_proj", {{"input", {"data", ""}}, {"weight", {"", "op"}}}, ""};
  const auto expected = parse(lists)[0].operands;
  for (const char* text :
       {"((dp,1),(1,op))", "((data,1),(1,op))", "( (dp, 1), (1, tp) )", "((dp,None),(.,mp))"}) {
    const auto entries = parse(tuple(text));
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(entries[0].pattern, "*.up_proj");
    EXPECT_EQ(entries[0].operands, expected) << text;
  }
  const auto input_only = parse(tuple("((dp,1,op),)"))[0].operands;
  EXPECT_EQ(input_only.size(), 1u);
  EXPECT_EQ(input_only.at("input"), (std::vector<std::string>{"data", "", "op"}));
}

TEST(Entries, MalformedTuplesAreRefused) {
  for (const char* text : {"(dp,1),(1,op)", "((dp,1),(1,op)", "((dp,1),(1,op)))", "((dp,1)) x",
                           "(((dp)))", "dp,1", "()", "((dp,1),op)", ")", "(("}) {
    expect_refused([&] { parse(tuple(text)); }, {"parallel.shard", "\"*.up_proj\"", text,
                                                 "expected one tuple per operator input"});
  }
  expect_refused([&] { parse(tuple("((dp,1),(1,op),(1))")); }, {"got 3 tuples", "one or two"});
}

TEST(Entries, UnknownAxesAreRefusedWithTheKnownOnes) {
  expect_refused(
      [&] {
        parse({"lm_head", {{"weight", {"", "rows"}}}, ""});
      },
      {"\"lm_head\"", "got axis \"rows\"", "data, op"});
  expect_refused([&] { parse(tuple("((dp,1),(1,pp))")); }, {"got axis \"pp\"", "data, op"});
}

// ---- strategies of nodes ----------------------------------------------------------------------

struct Matmul {
  Graph graph;
  Node node;
  NodeView view;

  explicit Matmul(bool transpose_w) {
    const ValueId x = graph.add_input("x", {DType::f32, {4, 6, 8}}, true);
    State state;
    state.name = "up_proj.weight";
    state.type = {DType::f32, transpose_w ? Shape{12, 8} : Shape{8, 12}};
    const ValueId w = graph.add_state(state);
    graph.set_scope("up_proj");
    graph.add(OpKind::matmul, {x, w, kNoValue, kNoValue}, {{"transpose_w", transpose_w}});
    node = graph.node(0);
    view = view_node(graph, node);
  }

  NodeStrategy strategy(const ShardStrategy& given, const Mesh& mesh = kMesh,
                        int64_t block = 1) const {
    ShardEntry entry = parse_entries({given}, mesh).at(0);
    entry.block = block;
    return entry_strategy(entry, node, view, mesh);
  }
  std::string text(const ShardStrategy& given, int64_t block = 1) const {
    return strategy_text(view.rule, strategy(given, kMesh, block), kMesh);
  }
};

TEST(Entries, WeightDimsAreInThenOutWhateverTheFile) {
  std::vector<std::string> texts;
  for (const bool transposed : {true, false}) {
    const Matmul matmul(transposed);
    const auto placements = [&](const ShardStrategy& given) {
      return place_operands(matmul.view, matmul.strategy(given), kMesh);
    };
    const size_t in = transposed ? 1 : 0;
    const size_t out = 1 - in;
    const NodePlacements column = placements(tuple("((dp,1),(1,op))"));
    EXPECT_EQ(column.inputs[1].dims[out].axes, std::vector<AxisId>{1});
    EXPECT_TRUE(column.inputs[1].dims[in].axes.empty());
    EXPECT_EQ(column.inputs[0].dims[0].axes, std::vector<AxisId>{0});
    EXPECT_EQ(column.outputs[0].dims[2].axes, std::vector<AxisId>{1});
    EXPECT_EQ(column.outputs[0].partial, 0u);
    const NodePlacements row = placements(tuple("((dp,op),(op,1))"));
    EXPECT_EQ(row.inputs[1].dims[in].axes, std::vector<AxisId>{1});
    EXPECT_EQ(row.inputs[0].dims[2].axes, std::vector<AxisId>{1});
    EXPECT_TRUE(row.outputs[0].is_partial(1));
    EXPECT_FALSE(row.outputs[0].is_partial(0));
  }
}

TEST(Entries, BlocksOfTheWeightAreKept) {
  const Matmul matmul(true);
  const NodeStrategy strategy = matmul.strategy(tuple("((dp,1),(1,op))"), kMesh, 4);
  EXPECT_EQ(strategy[1].block, 4);
  const NodePlacements placements = place_operands(matmul.view, strategy, kMesh);
  EXPECT_EQ(placements.inputs[1].dims[0].block, 4);  // 12 columns: 8 and 4
  EXPECT_EQ(placements.outputs[0].dims[2].block, 4);
}

TEST(Entries, AxesOfSizeOneCutNothing) {
  const Matmul matmul(true);
  const Mesh mesh({{"data", 2}, {"op", 1}});
  const NodeStrategy strategy = matmul.strategy(tuple("((dp,1),(1,op))"), mesh);
  EXPECT_EQ(strategy[1], AxisChoice{});
  EXPECT_EQ(strategy[0].kind, AxisChoice::Kind::factor);
}

TEST(Entries, ContradictionsNameTheDim) {
  const Matmul matmul(true);
  // A contraction that is cut on one side only.
  expect_refused(
      [&] { matmul.strategy(tuple("((dp,1),(op,1))")); },
      {"\"*.up_proj\" at up_proj (matmul)", "dim 2 of input whole over op", "expected it cut"});
  expect_refused([&] { matmul.strategy(tuple("((dp,op),(1,1))")); },
                 {"dim 0 of weight whole over op", "expected it cut"});
  // One axis on both dims of the weight.
  expect_refused(
      [&] {
        matmul.strategy({"*.up_proj", {{"weight", {"op", "op"}}}, ""});
      },
      {"got axis op on two different dims"});
}

TEST(Entries, WrongArityIsRefused) {
  const Matmul matmul(true);
  expect_refused([&] { matmul.strategy(tuple("((dp,1,1,1),(1,op))")); },
                 {"got 4 dims for input, expected 3"});
  expect_refused([&] { matmul.strategy(tuple("((dp,1),(1,1,op))")); },
                 {"got 3 dims for weight, expected 2"});
  expect_refused(
      [&] {
        matmul.strategy({"*.up_proj", {{"table", {"", "op"}}}, ""});
      },
      {"got operand \"table\"", "expected one of input"});
}

TEST(Entries, DimsThatMustStayWholeAreRefused) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {4, 6, 8}}, true);
  const ValueId w = graph.add_input("w", {DType::f32, {8}});
  graph.set_scope("model.norm");
  graph.add_node(OpKind::rmsnorm, {x, w}, {{"eps", 1e-6}});
  const Node& node = graph.node(0);
  const NodeView view = view_node(graph, node);
  const ShardEntry entry =
      parse_entries({{"model.norm", {{"input", {"", "", "op"}}}, ""}}, kMesh)[0];
  expect_refused(
      [&] { entry_strategy(entry, node, view, kMesh); },
      {"\"model.norm\" at model.norm (rmsnorm)", "got axis op on a dim of input", "needs whole"});
}

TEST(Entries, TablesHaveRowsAndFeatures) {
  Graph graph;
  const ValueId ids = graph.add_input("ids", {DType::i32, {4, 6}}, true);
  State state;
  state.name = "embed.weight";
  state.type = {DType::f32, {10, 8}};
  const ValueId table = graph.add_state(state);
  graph.set_scope("embed");
  graph.add(OpKind::embedding, {ids, table});
  const Node& node = graph.node(0);
  const NodeView view = view_node(graph, node);
  const auto placed = [&](const std::vector<std::string>& weight) {
    const ShardEntry entry = parse_entries({{"embed", {{"weight", weight}}, ""}}, kMesh)[0];
    return place_operands(view, entry_strategy(entry, node, view, kMesh), kMesh);
  };
  EXPECT_TRUE(placed({"op", ""}).outputs[0].is_partial(1));
  EXPECT_EQ(placed({"", "op"}).outputs[0].dims[2].axes, std::vector<AxisId>{1});
}

}  // namespace
}  // namespace weft
