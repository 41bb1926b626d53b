#include "weft/plan/build.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/plan/test_graphs.h"

namespace weft {
namespace {

Plan plan_of(const Graph& graph, PlanOptions options = {}) {
  const ProgramInput program{"train", &graph};
  options.backend = "test";
  return build_plan({&program, 1}, TestSupport(), options);
}

const PlanStep& step_with(const Plan& plan, OpKind op, std::string_view scope) {
  for (const PlanStep& step : plan.programs[0].steps) {
    if (step.op == op && step.scope == scope) return step;
  }
  throw BugError("test", "no such step");
}

TEST(BuildPlan, StatesComeFirstAndNeverMove) {
  const Graph graph = mlp_train_graph(2);
  const Plan plan = plan_of(graph);
  ASSERT_EQ(plan.states.size(), 6u);
  int64_t offset = 0;
  for (const PlanState& state : plan.states) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(state.buffer)];
    EXPECT_EQ(buffer.offset, offset);
    EXPECT_EQ(buffer.bytes, 16 * 16 * 4);
    EXPECT_EQ(buffer.program, -1);
    offset += buffer.bytes;
  }
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.program == 0) {
      EXPECT_GE(buffer.offset, offset);
    }
  }
  EXPECT_EQ(plan.find_state("up.weight@m")->role, StateRole::moment);
  EXPECT_EQ(plan.find_state("absent"), nullptr);
}

TEST(BuildPlan, UpdatesLandInTheirStates) {
  const Graph graph = mlp_train_graph(1);
  const Plan plan = plan_of(graph);
  const PlanStep& update = step_with(plan, OpKind::adamw, "up.weight");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(update.inputs[i], update.outputs[i]);
  EXPECT_EQ(update.outputs[0], plan.find_state("up.weight")->buffer);
  EXPECT_EQ(update.outputs[1], plan.find_state("up.weight@m")->buffer);
  EXPECT_EQ(update.outputs[2], plan.find_state("up.weight@v")->buffer);
  EXPECT_EQ(update.outputs[3], -1);
  EXPECT_EQ(plan.programs[0].state_results.size(), 6u);
}

TEST(BuildPlan, AccumulationUsesOneBuffer) {
  const Graph graph = mlp_train_graph(3);
  const Plan plan = plan_of(graph);
  int32_t buffer = -1;
  for (const PlanStep& step : plan.programs[0].steps) {
    if (step.op != OpKind::matmul_wgrad || step.scope != "up") continue;
    if (buffer < 0) {
      buffer = step.outputs[0];
    } else {
      EXPECT_EQ(step.inputs[2], buffer);
      EXPECT_EQ(step.outputs[0], buffer);
    }
  }
  EXPECT_EQ(plan.buffers[static_cast<size_t>(buffer)].memory_class, MemoryClass::gradients);
}

TEST(BuildPlan, ReusesAnOperandThatEnds) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {64}});
  const ValueId a = graph.add(OpKind::activation, {x}, {{"kind", std::string("silu")}});
  const ValueId b = graph.add(OpKind::add, {a, a});
  const ValueId c = graph.add(OpKind::add, {a, b});
  graph.set_output("c", c);
  const Plan plan = plan_of(graph);
  const auto& steps = plan.programs[0].steps;
  EXPECT_EQ(steps[0].outputs[0], steps[0].inputs[0]);  // x ends
  EXPECT_NE(steps[1].outputs[0], steps[1].inputs[0]);  // a is still needed
  EXPECT_EQ(steps[2].outputs[0], steps[2].inputs[0]);  // a ends
  EXPECT_EQ(plan.programs[0].live_peak_bytes, 2 * 64 * 4);
  EXPECT_EQ(plan.tiers[0].peak_bytes, 2 * 64 * 4);
}

TEST(BuildPlan, AnOutputIsNeverOverwritten) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {64}});
  const ValueId a = graph.add(OpKind::activation, {x}, {{"kind", std::string("silu")}});
  const ValueId b = graph.add(OpKind::activation, {a}, {{"kind", std::string("silu")}});
  graph.set_output("a", a);
  graph.set_output("b", b);
  const Plan plan = plan_of(graph);
  EXPECT_NE(plan.programs[0].outputs.at("a"), plan.programs[0].outputs.at("b"));
  EXPECT_EQ(plan.buffers[static_cast<size_t>(plan.programs[0].outputs.at("a"))].last_step, 1);
}

TEST(BuildPlan, DropsUnneededNodesAndDelaysTables) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {1, 4, 8}});
  const ValueId positions = graph.add_input("positions", {DType::i32, {1, 4}});
  const ValueId table =
      graph.add(OpKind::rope_table, {positions},
                {{"head_dim", int64_t{8}}, {"theta", 10000.0}, {"type", std::string("default")}});
  const ValueId unused = graph.add(OpKind::add, {x, x});
  const ValueId a = graph.add(OpKind::add, {x, x});
  const ValueId y = graph.add(OpKind::rope, {a, table}, {{"head_dim", int64_t{8}}});
  graph.set_output("y", y);
  EXPECT_NE(unused, kNoValue);
  const Plan plan = plan_of(graph);
  ASSERT_EQ(plan.programs[0].steps.size(), 3u);
  EXPECT_EQ(plan.programs[0].steps[0].op, OpKind::add);
  EXPECT_EQ(plan.programs[0].steps[1].op, OpKind::rope_table);
  EXPECT_EQ(plan.programs[0].steps[2].op, OpKind::rope);
}

TEST(BuildPlan, ProgramsShareStatesAndTheRest) {
  const Graph train = mlp_train_graph(2);
  Graph eval;
  const ValueId x = eval.add_input("x", {DType::f32, {1, 64, 16}});
  const ValueId w = add_weight(eval, "up.weight", {16, 16});
  const ValueId extra = add_weight(eval, "head.weight", {16, 16});
  const ValueId h = eval.add(OpKind::matmul, {x, w, kNoValue, kNoValue}, {{"transpose_w", true}});
  eval.set_output(
      "y", eval.add(OpKind::matmul, {h, extra, kNoValue, kNoValue}, {{"transpose_w", true}}));
  const std::vector<ProgramInput> programs{{"train", &train}, {"eval", &eval}};
  const Plan plan = build_plan(programs, TestSupport(), {});
  EXPECT_EQ(plan.states.size(), 7u);
  EXPECT_EQ(plan.program("eval").steps[0].inputs[1], plan.find_state("up.weight")->buffer);
  EXPECT_EQ(plan.program("eval").state_results.size(), 0u);
  int64_t train_first = INT64_MAX;
  int64_t eval_first = INT64_MAX;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.program == 0) train_first = std::min(train_first, b.offset);
    if (b.program == 1) eval_first = std::min(eval_first, b.offset);
  }
  EXPECT_EQ(train_first, 7 * 16 * 16 * 4);
  EXPECT_EQ(eval_first, train_first);
  EXPECT_THROW(plan.program("other"), BugError);
}

TEST(BuildPlan, SharedStateOfTwoTypesIsABug) {
  Graph a;
  add_weight(a, "w", {4, 4});
  Graph b;
  add_weight(b, "w", {4, 5});
  const std::vector<ProgramInput> programs{{"a", &a}, {"b", &b}};
  EXPECT_THROW(build_plan(programs, TestSupport(), {}), BugError);
}

TEST(BuildPlan, OldValueNeededAfterTheUpdateIsABug) {
  Graph graph = mlp_train_graph(1);
  const ValueId w = graph.find_state("up.weight")->value;
  graph.set_output("late", graph.add(OpKind::add, {w, w}));
  EXPECT_THROW(plan_of(graph), BugError);
}

TEST(BuildPlan, ChangedButUndeclaredStateIsABug) {
  Graph graph = mlp_train_graph(1);
  graph.states()[0].result = kNoValue;
  EXPECT_THROW(plan_of(graph), BugError);
}

TEST(BuildPlan, MissingKernelIsRefusedByName) {
  const Graph graph = mlp_train_graph(1);
  TestSupport support;
  support.refused = OpKind::matmul_wgrad;
  const ProgramInput program{"train", &graph};
  try {
    build_plan({&program, 1}, support, {.backend = "test"});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("matmul_wgrad"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("backend test"), std::string::npos) << error.what();
  }
}

TEST(BuildPlan, ClassesAndPaddingSumToThePeak) {
  const Graph graph = mlp_train_graph(2, 1000);
  const Plan plan = plan_of(graph);
  const Json json = plan_summary_json(plan);
  const Json& device = json.at("ranks").as_array()[0].at("device");
  int64_t sum = 0;
  for (const char* key : {"weights", "gradients", "optimizer", "activations", "workspace",
                          "prefetch", "inputs", "padding"}) {
    EXPECT_GE(device.at(key).as_int(), 0) << key;
    sum += device.at(key).as_int();
  }
  EXPECT_EQ(sum, device.at("peak_bytes").as_int());
  EXPECT_EQ(device.at("weights").as_int(), 2 * 16 * 16 * 4);
  EXPECT_EQ(device.at("optimizer").as_int(), 4 * 16 * 16 * 4);
  EXPECT_EQ(json.at("fits").as_bool(), true);
  EXPECT_EQ(json.at("world").as_int(), 1);
  for (const char* key : {"model", "nodes", "traffic", "time", "advice"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(BuildPlan, B44_TooSmallABudgetIsRefusedWithTheTable) {
  const Graph graph = mlp_train_graph(2, 1000);
  PlanOptions options;
  options.device_budget = 200'000;
  options.micro_batch = 1000;
  options.compute = "fp32";
  const Plan plan = plan_of(graph, options);
  EXPECT_FALSE(plan.fits);
  const int64_t peak = plan.tiers[0].peak_bytes;
  EXPECT_GT(peak, 200'000);
  try {
    require_fits(plan);
    FAIL() << "accepted";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    for (const std::string& part :
         {std::to_string(peak - 200'000) + " bytes missing", std::string("train.micro_batch = "),
          std::string("memory.device = ") + std::to_string(peak), std::string("weights (f32)"),
          std::string("gradients (f32)"), std::string("optimizer: moments (f32)"),
          std::string("activations"), std::string("MISSING")}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
    }
  }
  options.device_budget = peak;
  const Plan enough = plan_of(graph, options);
  EXPECT_TRUE(enough.fits);
  EXPECT_TRUE(enough.advice.empty());
  EXPECT_NO_THROW(require_fits(enough));
}

TEST(BuildPlan, TimeIsTheRoofline) {
  const Graph graph = mlp_train_graph(1);
  PlanOptions options;
  options.machine.peak_flops[static_cast<size_t>(DType::f32)] = 1e9;
  options.machine.memory_bandwidth = 1e12;
  options.machine.step_overhead = 0;
  const Plan plan = plan_of(graph, options);
  // Five matmuls of 2 * 8 * 16 * 16 FLOPs; all other work is small on this machine, not nothing.
  const double matmuls = 5 * 2.0 * 8 * 16 * 16;
  EXPECT_DOUBLE_EQ(plan.programs[0].flops, matmuls);
  EXPECT_GT(plan.time.step_ms, matmuls / 1e9 * 1e3);
  EXPECT_DOUBLE_EQ(plan.time.mfu, matmuls / 1e9 * 1e3 / plan.time.step_ms);
  EXPECT_GT(plan.time.update_ms, 0);
  EXPECT_LT(plan.time.update_ms, plan.time.step_ms);
}

TEST(BuildPlan, TextNamesWhatMatters) {
  const Graph graph = mlp_train_graph(2, 1000);
  const std::string text = plan_text(plan_of(graph));
  for (const char* part : {"weights (f32)", "largest buffers at the peak", "programs", "train",
                           "predicted step", "fits"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(BuildPlan, RandomGraphsPass) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Graph graph = random_graph(seed, 200);
    const Plan plan = plan_of(graph);  // verified inside
    const double live = static_cast<double>(plan.programs[0].live_peak_bytes);
    EXPECT_GT(live, 0);
  }
}

}  // namespace
}  // namespace weft
