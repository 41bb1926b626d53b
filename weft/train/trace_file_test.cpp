#include "weft/train/trace_file.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/test_folder.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

PlanStep make_step(Lane lane, Phase phase, int micro, std::string scope,
                   std::vector<int32_t> waits = {}) {
  PlanStep step;
  step.lane = lane;
  step.op = OpKind::matmul;
  step.phase = phase;
  step.micro = micro;
  step.scope = std::move(scope);
  step.waits = std::move(waits);
  return step;
}

Plan example_plan() {
  Plan plan;
  plan.backend = "ref";
  plan.rank = 3;
  plan.world = 4;
  PlanProgram program;
  program.name = "train";
  program.steps = {make_step(Lane::h2d, Phase::forward, 0, "layers.0"),
                   make_step(Lane::compute, Phase::forward, 0, "layers.0", {0}),
                   make_step(Lane::compute, Phase::forward, 0, "layers.1"),
                   make_step(Lane::compute, Phase::backward, 0, "layers.1"),
                   make_step(Lane::compute, Phase::update, 0, "")};
  plan.programs.push_back(program);
  return plan;
}

std::vector<TraceEvent> example_events() {
  return {{1, Lane::compute, 4.0004, 6.0},
          {0, Lane::h2d, 0.5, 4.0},
          {2, Lane::compute, 6.0, 9.3333},
          {3, Lane::compute, 9.3333, 20},
          {4, Lane::compute, 21, 22}};
}

const MachineSpec kMachine{.step_overhead = 0};

Json measured(const std::vector<TraceEvent>& events) {
  return trace_json({example_plan(), "train", events}, kMachine);
}

/// Events of the rank as it ran, or with `process` 7 as it was planned.
std::vector<Json> of_kind(const Json& trace, std::string_view kind, int64_t process = 3) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    const bool wanted = event.at("pid").as_int() == process;
    if (wanted && event.at("ph").as_string() == kind) found.push_back(event);
  }
  return found;
}

TEST(TraceFile, OneThreadPerLaneNamedByIt) {
  const Json trace = measured(example_events());
  std::map<int64_t, std::string> threads;
  for (const Json& event : of_kind(trace, "M")) {
    EXPECT_EQ(event.at("pid").as_int(), 3);
    if (event.at("name").as_string() == "thread_name") {
      threads[event.at("tid").as_int()] = event.at("args").at("name").as_string();
    }
  }
  EXPECT_EQ(threads, (std::map<int64_t, std::string>{{0, "phases"}, {1, "compute"}, {3, "h2d"}}));
  EXPECT_EQ(of_kind(trace, "M")[0].at("args").at("name").as_string(), "rank 3");
}

TEST(TraceFile, StepsAreNamedByOperatorAndScope) {
  const Json trace = measured(example_events());
  std::vector<std::string> names;
  for (const Json& event : of_kind(trace, "X")) {
    if (event.at("tid").as_int() != 0) names.push_back(event.at("name").as_string());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"matmul layers.0", "matmul layers.0",
                                             "matmul layers.1", "matmul layers.1", "matmul"}));
}

TEST(TraceFile, EventsOfAThreadNeverOverlap) {
  const Json trace = measured(example_events());
  std::map<int64_t, double> ends;
  for (const Json& event : of_kind(trace, "X")) {
    double& end = ends[event.at("tid").as_int()];
    EXPECT_GE(event.at("ts").as_double(), end - 1e-9);
    EXPECT_GE(event.at("dur").as_double(), 0);
    end = event.at("ts").as_double() + event.at("dur").as_double();
  }
  EXPECT_EQ(ends.size(), 3u);
}

TEST(TraceFile, PhasesCoverTheStepsOfTheComputeLane) {
  const Json trace = measured(example_events());
  std::vector<std::string> names;
  std::vector<double> begins, lengths;
  for (const Json& event : of_kind(trace, "X")) {
    if (event.at("tid").as_int() != 0) continue;
    names.push_back(event.at("name").as_string());
    begins.push_back(event.at("ts").as_double());
    lengths.push_back(event.at("dur").as_double());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"forward 0", "backward 0", "update"}));
  EXPECT_EQ(begins, (std::vector<double>{4.0, 9.333, 21}));
  EXPECT_EQ(lengths, (std::vector<double>{5.333, 10.667, 1}));
}

TEST(TraceFile, WaitsBetweenLanesBecomeArrows) {
  const Json trace = measured(example_events());
  const std::vector<Json> from = of_kind(trace, "s"), to = of_kind(trace, "f");
  ASSERT_EQ(from.size(), 1u);
  ASSERT_EQ(to.size(), 1u);
  EXPECT_EQ(from[0].at("id").as_int(), to[0].at("id").as_int());
  EXPECT_EQ(from[0].at("tid").as_int(), 3);
  EXPECT_EQ(from[0].at("ts").as_double(), 4.0);
  EXPECT_EQ(to[0].at("tid").as_int(), 1);
  EXPECT_EQ(to[0].at("bp").as_string(), "e");
}

TEST(TraceFile, ThePlanStandsBesideIt) {
  Plan plan = example_plan();
  std::vector<PlanStep>& steps = plan.programs[0].steps;
  steps[0].cost.bytes = 5e3;   // of 5e9 per second
  steps[1].cost.bytes = 20e3;  // of 10e9 per second, once step 0 has ended
  steps[2].cost.bytes = 10e3;
  const Json trace = trace_json({plan, "train", example_events()}, kMachine);
  EXPECT_EQ(of_kind(trace, "M", 7)[0].at("args").at("name").as_string(), "rank 3, planned");
  std::vector<std::vector<double>> spans;
  for (const Json& event : of_kind(trace, "X", 7)) {
    if (event.at("tid").as_int() == 0) continue;
    spans.push_back({event.at("ts").as_double(), event.at("dur").as_double()});
  }
  EXPECT_EQ(spans, (std::vector<std::vector<double>>{{0, 1}, {1, 2}, {3, 1}, {4, 0}, {4, 0}}));
}

TEST(TraceFile, OverlapOnALaneIsABug) {
  std::vector<TraceEvent> events = example_events();
  events[2].begin_us = 5;
  EXPECT_THROW(measured(events), BugError);
}

TEST(TraceFile, EventOfAnotherProgramIsABug) {
  EXPECT_THROW(measured({{9, Lane::compute, 0, 1}}), BugError);
}

TEST(TraceFile, WritesOneJsonDocument) {
  const TestFolder folder;
  write_trace(folder.file("trace"), 12, {example_plan(), "train", example_events()}, kMachine);
  const Json trace = read_json_file(folder.file("trace/step-12.rank-3.json"));
  EXPECT_EQ(trace.at("displayTimeUnit").as_string(), "ms");
  EXPECT_EQ(trace.at("otherData").at("world").as_int(), 4);
}

}  // namespace
}  // namespace weft
