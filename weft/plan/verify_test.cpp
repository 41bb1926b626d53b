// Every way to damage a plan is noticed.
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/plan/passes.h"
#include "weft/plan/test_graphs.h"

namespace weft {
namespace {

Plan good_plan() {
  static const Graph graph = mlp_train_graph(2);
  const ProgramInput program{"train", &graph};
  return build_plan({&program, 1}, TestSupport(), {});
}

void expect_refused(const Plan& plan, const std::string& reason) {
  try {
    verify_plan(plan);
    FAIL() << "accepted a plan with: " << reason;
  } catch (const BugError& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

PlanBuffer& buffer_named(Plan& plan, std::string_view name) {
  for (PlanBuffer& buffer : plan.buffers) {
    if (buffer.name == name) return buffer;
  }
  throw BugError("test", "no such buffer");
}

/// Two steps on two lanes that pass a value through `between`, with the wait that this needs.
Plan two_lanes() {
  Plan plan;
  const TensorType type{DType::f32, {16}};
  for (const char* name : {"x", "between", "y"}) {
    PlanBuffer buffer;
    buffer.name = name;
    buffer.type = type;
    buffer.bytes = type.bytes();
    buffer.offset = static_cast<int64_t>(plan.buffers.size()) * 64;
    buffer.program = 0;
    buffer.last_step = 1;
    plan.buffers.push_back(buffer);
  }
  plan.tiers[0].peak_bytes = 192;
  PlanProgram program;
  program.name = "train";
  for (int32_t i = 0; i < 2; ++i) {
    PlanStep step;
    step.op = OpKind::activation;
    step.lane = i == 0 ? Lane::d2h : Lane::compute;
    step.inputs = {i};
    step.outputs = {i + 1};
    step.input_types = {type};
    step.output_types = {type};
    program.steps.push_back(step);
  }
  program.steps[1].waits = {0};
  program.inputs["x"] = 0;
  program.outputs["y"] = 2;
  plan.programs.push_back(program);
  return plan;
}

TEST(VerifyPlan, AcceptsGoodPlans) {
  EXPECT_NO_THROW(verify_plan(good_plan()));
  EXPECT_NO_THROW(verify_plan(two_lanes()));
}

TEST(VerifyPlan, Misalignment) {
  Plan plan = good_plan();
  buffer_named(plan, "x.0").offset += 8;
  expect_refused(plan, "expected a multiple of 64");
}

TEST(VerifyPlan, OverlapOfLiveBuffers) {
  Plan plan = good_plan();
  buffer_named(plan, "x.1").offset = buffer_named(plan, "dy.1").offset;
  expect_refused(plan, "overlap while both are in use");
}

TEST(VerifyPlan, OverlapWithAState) {
  Plan plan = good_plan();
  buffer_named(plan, "x.1").offset = 0;
  expect_refused(plan, "overlap while both are in use");
}

TEST(VerifyPlan, LiveRangeCutShort) {
  Plan plan = good_plan();
  buffer_named(plan, "dy.1").last_step -= 1;
  expect_refused(plan, "outside its live range");
}

TEST(VerifyPlan, OperandNobodyWrote) {
  Plan plan = good_plan();
  plan.programs[0].inputs.erase("dy.1");
  expect_refused(plan, "nothing has written");
}

TEST(VerifyPlan, StepsInTheWrongOrder) {
  Plan plan = good_plan();
  std::swap(plan.programs[0].steps[0], plan.programs[0].steps[1]);
  expect_refused(plan, "step 0 of train");
}

TEST(VerifyPlan, OperandWithoutMemory) {
  Plan plan = good_plan();
  plan.programs[0].steps[0].inputs[0] = -1;
  expect_refused(plan, "without memory or type");
  plan = good_plan();
  plan.programs[0].steps[0].inputs[0] = 10'000;
  expect_refused(plan, "names buffer 10000");
}

TEST(VerifyPlan, BufferSmallerThanItsValue) {
  Plan plan = good_plan();
  buffer_named(plan, "x.0").bytes -= 64;
  expect_refused(plan, "its type needs");
}

TEST(VerifyPlan, StateResultElsewhere) {
  Plan plan = good_plan();
  PlanStep& update = plan.programs[0].steps.back();
  ASSERT_EQ(update.op, OpKind::adamw);
  update.outputs[0] = update.inputs[3];  // over the gradient, which has the same size
  expect_refused(plan, "is not written into the state's buffer");
}

TEST(VerifyPlan, StateChangedInSecret) {
  Plan plan = good_plan();
  plan.programs[0].state_results.erase(0);
  expect_refused(plan, "which program train does not change");
}

TEST(VerifyPlan, TwoStatesInOneBuffer) {
  Plan plan = good_plan();
  plan.states[1].buffer = plan.states[0].buffer;
  expect_refused(plan, "two states lie in buffer");
}

TEST(VerifyPlan, OutputGivenUpEarly) {
  Plan plan = good_plan();
  const int32_t norm = plan.programs[0].outputs.at("norm");
  plan.buffers[static_cast<size_t>(norm)].last_step -= 1;
  expect_refused(plan, "output norm of train is given up before the end");
}

TEST(VerifyPlan, UntruePeakAndBrokenBudget) {
  Plan plan = good_plan();
  plan.tiers[0].peak_bytes -= 64;
  expect_refused(plan, "its buffers need");
  plan = good_plan();
  plan.tiers[0].budget = plan.tiers[0].peak_bytes - 1;
  expect_refused(plan, "over its budget");
  plan.fits = false;
  EXPECT_NO_THROW(verify_plan(plan));
  plan.tiers[0].budget = 0;
  expect_refused(plan, "every budget is kept");
}

TEST(VerifyPlan, MissingWaitBetweenLanes) {
  Plan plan = two_lanes();
  plan.programs[0].steps[1].waits.clear();
  expect_refused(plan, "no wait orders them");
}

TEST(VerifyPlan, WaitsForwardOrOnItsOwnLane) {
  Plan plan = two_lanes();
  plan.programs[0].steps[0].waits = {1};
  expect_refused(plan, "expected an earlier one");
  plan = two_lanes();
  plan.programs[0].steps[1].lane = Lane::d2h;
  expect_refused(plan, "of its own lane");
}

TEST(VerifyPlan, MemoryUsedAgainBeforeItsReaderIsDone) {
  // A third step on the d2h lane overwrites x, which only step 0 of the same lane has read: fine.
  // Overwriting `between` needs a wait for step 1, which reads it on the compute lane.
  Plan plan = two_lanes();
  PlanStep step = plan.programs[0].steps[0];
  step.inputs = {0};
  step.outputs = {1};
  plan.programs[0].steps.push_back(step);
  for (PlanBuffer& buffer : plan.buffers) buffer.last_step = 2;
  expect_refused(plan, "no wait orders them");
  plan.programs[0].steps[2].waits = {1};
  EXPECT_NO_THROW(verify_plan(plan));
}

TEST(AddWaits, MakesAMultiLanePlanLegal) {
  Plan plan = good_plan();
  PlanProgram& program = plan.programs[0];
  const Lane lanes[] = {Lane::compute, Lane::d2h, Lane::comm};
  for (size_t i = 0; i < program.steps.size(); ++i) program.steps[i].lane = lanes[i % 3];
  expect_refused(plan, "no wait orders them");
  add_waits(plan.buffers, program);
  EXPECT_NO_THROW(verify_plan(plan));
}

}  // namespace
}  // namespace weft
