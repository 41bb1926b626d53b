#include "weft/runtime/session.h"

#include <gtest/gtest.h>

#include <map>

#include "weft/base/error.h"
#include "weft/plan/passes.h"
#include "weft/plan/test_graphs.h"
#include "weft/runtime/test_backend.h"

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::string_view name, int64_t bytes) {
  Bytes data(static_cast<size_t>(bytes));
  const RngStream stream(1, name);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(stream.bits(i) & 0xff);
  return data;
}

/// Every value in memory of its own, nodes in graph order: what a run must equal.
std::vector<Bytes> evaluate(const Graph& graph) {
  std::vector<Bytes> values(static_cast<size_t>(graph.num_values()));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.kind == ValueKind::node) continue;
    values[static_cast<size_t>(id)] = some_bytes(value.name, value.type.bytes());
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Bytes> inputs;
    for (ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? Bytes{} : values[static_cast<size_t>(id)]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      Bytes& out = values[static_cast<size_t>(node.outputs[i])];
      out.resize(static_cast<size_t>(graph.type(node.outputs[i]).bytes()));
      scramble(node.op, inputs, static_cast<int>(i), out.data(), static_cast<int64_t>(out.size()));
    }
  }
  return values;
}

void expect_equal_to_naive(const Graph& graph, const Plan& plan) {
  const std::vector<Bytes> expected = evaluate(graph);
  TestBackend backend;
  Session session(plan, backend);
  for (size_t i = 0; i < plan.states.size(); ++i) {
    session.write_state(static_cast<int>(i),
                        some_bytes(plan.states[i].name, plan.states[i].type.bytes()).data());
  }
  for (ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    const Bytes data = some_bytes(value.name, value.type.bytes());
    session.set_input("train", value.name, data.data(), value.type.bytes());
  }
  session.run("train");
  for (const auto& [name, id] : graph.outputs()) {
    Bytes data(static_cast<size_t>(graph.type(id).bytes()));
    session.get_output("train", name, data.data(), static_cast<int64_t>(data.size()));
    EXPECT_EQ(data, expected[static_cast<size_t>(id)]) << name;
  }
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const State& state = *graph.find_state(plan.states[i].name);
    Bytes data(static_cast<size_t>(state.type.bytes()));
    session.read_state(static_cast<int>(i), data.data());
    const ValueId id = state.result == kNoValue ? state.value : state.result;
    EXPECT_EQ(data, expected[static_cast<size_t>(id)]) << state.name;
  }
}

Plan plan_of(const Graph& graph) {
  const ProgramInput program{"train", &graph};
  return build_plan({&program, 1}, TestSupport(), {});
}

Plan on_three_lanes(Plan plan) {
  const Lane lanes[] = {Lane::compute, Lane::d2h, Lane::comm};
  PlanProgram& program = plan.programs[0];
  for (size_t i = 0; i < program.steps.size(); ++i) program.steps[i].lane = lanes[i % 3];
  add_waits(plan.buffers, program);
  verify_plan(plan);
  return plan;
}

TEST(Session, TrainingStepEqualsNaiveEvaluation) {
  for (int micros : {1, 2, 5}) {
    const Graph graph = mlp_train_graph(micros);
    const Plan plan = plan_of(graph);
    expect_equal_to_naive(graph, plan);
    expect_equal_to_naive(graph, on_three_lanes(plan));
  }
}

TEST(Session, RandomGraphsEqualNaiveEvaluation) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Graph graph = random_graph(seed, 120);
    const Plan plan = plan_of(graph);
    expect_equal_to_naive(graph, plan);
    expect_equal_to_naive(graph, on_three_lanes(plan));
  }
}

TEST(Session, UsesExactlyThePlannedBytes) {
  const Graph graph = mlp_train_graph(2);
  const Plan plan = plan_of(graph);
  TestBackend backend;
  const Session session(plan, backend);
  EXPECT_EQ(session.used_bytes(Tier::device), plan.tiers[0].peak_bytes);
  EXPECT_EQ(session.used_bytes(Tier::host), 0);
  EXPECT_EQ(session.used_bytes(Tier::nvme), 0);
}

TEST(Session, EqualStepsShareOneKernel) {
  const Graph one = mlp_train_graph(2);
  const Graph many = mlp_train_graph(9);
  TestBackend first;
  TestBackend second;
  const Plan plan_one = plan_of(one);
  const Plan plan_many = plan_of(many);
  const Session session_one(plan_one, first);
  const Session session_many(plan_many, second);
  EXPECT_EQ(first.prepared, second.prepared);
  EXPECT_LT(first.prepared, static_cast<int>(plan_one.programs[0].steps.size()));
}

TEST(Session, RunsStepsInOrderAndTracesThem) {
  const Graph graph = mlp_train_graph(2);
  const Plan plan = plan_of(graph);
  TestBackend backend;
  Session session(plan, backend);
  std::vector<TraceEvent> events;
  session.record_trace(&events);
  session.run("train");
  const auto& steps = plan.programs[0].steps;
  ASSERT_EQ(backend.executed.size(), steps.size());
  ASSERT_EQ(events.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(backend.executed[i], steps[i].op);
    EXPECT_EQ(events[i].step, static_cast<int32_t>(i));
    EXPECT_LE(events[i].begin_us, events[i].end_us);
    if (i > 0) {
      EXPECT_GE(events[i].begin_us, events[i - 1].end_us);
    }
  }
  events.clear();
  session.run("train");  // one run only
  EXPECT_TRUE(events.empty());
}

TEST(Session, TimesAddUp) {
  const Graph graph = mlp_train_graph(2);
  const Plan plan = plan_of(graph);
  TestBackend backend;
  Session session(plan, backend);
  const RunTimes times = session.run("train");
  EXPECT_GT(times.update_ms, 0);
  EXPECT_LE(times.update_ms, times.compute_ms);
  EXPECT_LE(times.compute_ms, times.total_ms);
}

void expect_failure(const Plan& plan, const char* lane) {
  TestBackend backend;
  backend.failing = OpKind::activation_grad;
  Session session(plan, backend);
  for (int i = 0; i < 3; ++i) {  // a failed run does not spoil the next
    try {
      session.run("train");
      FAIL() << "no error";
    } catch (const BugError& error) {
      const std::string text = error.what();
      for (const std::string& part :
           {std::string("train step "), std::string("operator activation_grad"),
            std::string("scope act"), std::string("micro-batch 0"), std::string(lane),
            std::string("rank 0"), std::string("broken")}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
      }
    }
  }
  backend.failure = [] { throw ResourceError("kernel", "no memory"); };
  EXPECT_THROW(session.run("train"), ResourceError);
  backend.failing = static_cast<OpKind>(kNumOps);
  EXPECT_NO_THROW(session.run("train"));
}

TEST(Session, ErrorsNameTheStep) {
  const Graph graph = mlp_train_graph(2);
  expect_failure(plan_of(graph), "lane compute");
}

TEST(Session, ErrorsOfOtherLanesStopEveryLane) {
  const Graph graph = mlp_train_graph(2);
  Plan plan = plan_of(graph);
  PlanProgram& program = plan.programs[0];
  // Every other step, on whichever lane, waits for something that the failing step holds up.
  for (PlanStep& step : program.steps) {
    step.lane = step.op == OpKind::activation_grad ? Lane::h2d
                : step.phase == Phase::update      ? Lane::comm
                                                   : Lane::compute;
  }
  add_waits(plan.buffers, program);
  verify_plan(plan);
  expect_failure(plan, "lane h2d");
}

TEST(Session, InputsAndOutputsAreCheckedByNameAndSize) {
  const Graph graph = mlp_train_graph(1);
  const Plan plan = plan_of(graph);
  TestBackend backend;
  Session session(plan, backend);
  float value[3] = {};
  EXPECT_TRUE(session.has_input("train", "hyper"));
  EXPECT_FALSE(session.has_input("train", "tokens"));
  EXPECT_TRUE(session.has_output("train", "norm"));
  EXPECT_FALSE(session.has_output("train", "loss"));
  EXPECT_NO_THROW(session.set_input("train", "hyper", value, 12));
  EXPECT_THROW(session.set_input("train", "hyper", value, 8), BugError);
  EXPECT_THROW(session.set_input("train", "tokens", value, 8), BugError);
  EXPECT_THROW(session.get_output("train", "norm", value, 8), BugError);
  EXPECT_THROW(session.run("eval"), BugError);
}

State state_of(std::string name, DType dtype, Shape shape, StateInit init, LogicalSlice logical) {
  State state;
  state.name = std::move(name);
  state.type = {dtype, std::move(shape)};
  state.init = std::move(init);
  state.logical = std::move(logical);
  return state;
}

std::vector<float> read_floats(Session& session, int index, size_t count) {
  std::vector<float> data(count);
  session.read_state(index, data.data());
  return data;
}

TEST(Session, StatesAreDrawnFromTheLogicalTensor) {
  using Kind = StateInit::Kind;
  Graph graph;
  const LogicalSlice whole{"w", {6, 10}, {0, 0}};
  graph.add_state(state_of("whole", DType::f32, {6, 10}, {Kind::normal, 0.5, ""}, whole));
  graph.add_state(
      state_of("piece", DType::f32, {2, 4}, {Kind::normal, 0.5, ""}, {"w", {6, 10}, {3, 5}}));
  graph.add_state(state_of("ones", DType::f32, {5}, {Kind::ones, 0, ""}, {"n", {5}, {0}}));
  graph.add_state(state_of("zeros", DType::f32, {5}, {}, {"z", {5}, {0}}));
  // Listed before its source in no order that matters.
  graph.add_state(state_of("low", DType::bf16, {6, 10}, {Kind::copy, 0, "whole"}, whole));
  const Plan plan = plan_of(graph);
  TestBackend backend;
  Session session(plan, backend);
  session.init_states(42);

  const std::vector<float> w = read_floats(session, 0, 60);
  const RngStream stream(42, "w");
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_EQ(w[i], static_cast<float>(stream.normal(i) * 0.5));
  }
  const std::vector<float> piece = read_floats(session, 1, 8);
  for (size_t r = 0; r < 2; ++r) {
    for (size_t c = 0; c < 4; ++c) EXPECT_EQ(piece[r * 4 + c], w[(r + 3) * 10 + c + 5]);
  }
  EXPECT_EQ(read_floats(session, 2, 5), std::vector<float>(5, 1.0f));
  EXPECT_EQ(read_floats(session, 3, 5), std::vector<float>(5, 0.0f));
  std::vector<BF16> low(60);
  session.read_state(4, low.data());
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(low[i].bits, to_bf16(w[i]).bits);

  const std::vector<float> other(60, 3.0f);
  session.write_state(0, other.data());
  session.refresh_copies();
  session.read_state(4, low.data());
  for (BF16 value : low) EXPECT_EQ(to_float(value), 3.0f);
}

TEST(Session, LargeStatesAreDrawnInPieces) {
  Graph graph;
  const int64_t rows = 1031;
  const int64_t columns = 4099;  // many chunks, none of them whole rows
  graph.add_state(state_of("w", DType::f32, {rows, columns}, {StateInit::Kind::normal, 1.0, ""},
                           {"w", {rows, columns}, {0, 0}}));
  graph.add_state(state_of("low", DType::bf16, {rows, columns}, {StateInit::Kind::copy, 0, "w"},
                           {"w", {rows, columns}, {0, 0}}));
  const Plan plan = plan_of(graph);
  TestBackend backend;
  Session session(plan, backend);
  session.init_states(1);
  const auto count = static_cast<size_t>(rows * columns);
  const std::vector<float> w = read_floats(session, 0, count);
  std::vector<BF16> low(count);
  session.read_state(1, low.data());
  const RngStream stream(1, "w");
  for (size_t i = 0; i < count; i += 997) {
    EXPECT_EQ(w[i], static_cast<float>(stream.normal(i))) << i;
    EXPECT_EQ(low[i].bits, to_bf16(w[i]).bits) << i;
  }
}

}  // namespace
}  // namespace weft
