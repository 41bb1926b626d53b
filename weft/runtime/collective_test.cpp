// Sessions whose plans hold collectives: who runs them, what waiting costs, what an error does.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>

#include "weft/base/error.h"
#include "weft/plan/passes.h"
#include "weft/runtime/session.h"
#include "weft/runtime/test_backend.h"

namespace weft {
namespace {

/// A communicator whose collectives run `work`; notes what it is asked to do.
class TestCommunicator : public Communicator {
 public:
  std::string_view name() const override { return "test"; }
  int rank() const override { return rank_; }
  int world() const override { return 2; }
  std::unique_ptr<Kernel> prepare(const KernelSpec& spec, std::span<const int32_t> group) override;
  std::vector<std::string> gather(Channel, std::string_view) override { return {}; }
  std::string broadcast(Channel, std::string_view) override { return ""; }
  void barrier(Channel) override {}
  void abort(std::string_view cause) noexcept override {
    const std::lock_guard lock(mutex_);
    causes.emplace_back(cause);
    changed_.notify_all();
  }
  std::map<std::string, int64_t> received() const override { return {}; }

  /// What a collective does whose peers never come.
  void wait_for_abort() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !causes.empty(); });
    throw PeerError("rank 1", causes.front());
  }

  int rank_ = 0;
  std::vector<std::string> prepared;  // "op axis members"
  std::vector<std::string> causes;
  std::function<void()> work = [] {};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class CollectiveKernel : public Kernel {
 public:
  CollectiveKernel(TestCommunicator& communicator, KernelSpec spec)
      : communicator_(communicator), spec_(std::move(spec)) {}
  void run(const KernelArgs& args) override {
    communicator_.work();
    for (size_t i = 0; i < spec_.outputs.size(); ++i) {
      std::memmove(args.outputs[i], args.inputs[i], static_cast<size_t>(spec_.outputs[i].bytes()));
    }
  }

 private:
  TestCommunicator& communicator_;
  KernelSpec spec_;
};

std::unique_ptr<Kernel> TestCommunicator::prepare(const KernelSpec& spec,
                                                  std::span<const int32_t> group) {
  std::string line = std::string(op_def(spec.op).name) + " " + spec.attrs.get_string("axis");
  for (const int32_t member : group) line += " " + std::to_string(member);
  prepared.push_back(line);
  return std::make_unique<CollectiveKernel>(*this, spec);
}

Attrs over(const std::string& axis) {
  return {{"axis", axis}, {"ways", int64_t{2}}, {"index", int64_t{0}}};
}

/// y = silu(sum over data of silu(x)); z, which the collective does not touch, is long.
Graph reduce_graph() {
  Graph graph;
  const Attrs silu{{"kind", std::string("silu")}};
  const ValueId x = graph.add_input("x", {DType::f32, {1, 4, 8}});
  const ValueId h = graph.add(OpKind::activation, {x}, silu);
  graph.set_scope("norm");
  const ValueId sum = graph.add(OpKind::all_reduce, {h}, over("data"));
  graph.set_scope("long");
  ValueId z = x;
  for (int i = 0; i < 4; ++i) z = graph.add(OpKind::activation, {z}, silu);
  graph.set_scope("");
  graph.set_output("z", z);
  graph.set_output("y", graph.add(OpKind::activation, {sum}, silu));
  return graph;
}

Plan reduce_plan(Lane lane) {
  const Graph graph = reduce_graph();
  const ProgramInput program{"train", &graph};
  Plan plan = build_plan({&program, 1}, TestSupport(), {});
  plan.world = 2;
  plan.mesh = {{"data", 2}};
  plan.coords = {{"data", 0}};
  plan.groups = {{"data", {0, 1}}};
  for (PlanStep& step : plan.programs[0].steps) {
    step.waits.clear();
    if (op_def(step.op).collective) step.lane = lane;
  }
  add_waits(plan.buffers, plan.programs[0]);
  verify_plan(plan);
  return plan;
}

int step_of(const Plan& plan, OpKind op) {
  const auto& steps = plan.programs[0].steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].op == op) return static_cast<int>(i);
  }
  return -1;
}

void burn_a_millisecond() {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1)) {
  }
}

TEST(Collectives, RunOnTheCommunicatorWithTheGroupOfTheirAxis) {
  const Plan plan = reduce_plan(Lane::comm);
  TestBackend backend;
  TestCommunicator communicator;
  Session session(plan, backend, &communicator);
  EXPECT_EQ(communicator.prepared, std::vector<std::string>{"all_reduce data 0 1"});
  session.run("train");
  for (const OpKind op : backend.executed) EXPECT_EQ(op, OpKind::activation);
  EXPECT_EQ(backend.executed.size(), plan.programs[0].steps.size() - 1);
  EXPECT_TRUE(communicator.causes.empty());
}

TEST(Collectives, NeedACommunicatorOfThePlansRank) {
  const Plan plan = reduce_plan(Lane::comm);
  TestBackend backend;
  EXPECT_THROW(Session(plan, backend), BugError);
  TestCommunicator communicator;
  communicator.rank_ = 1;
  EXPECT_THROW(Session(plan, backend, &communicator), BugError);
  communicator.rank_ = 0;
  Plan without_group = plan;
  without_group.groups.clear();
  EXPECT_THROW(Session(without_group, backend, &communicator), BugError);
}

TEST(Collectives, TheirTimeIsTheirOwn) {
  for (const Lane lane : {Lane::comm, Lane::compute}) {
    const Plan plan = reduce_plan(lane);
    TestBackend backend;
    TestCommunicator communicator;
    communicator.work = burn_a_millisecond;
    Session session(plan, backend, &communicator);
    std::vector<TraceEvent> events;
    session.record_trace(&events);
    const RunTimes times = session.run("train");
    const TraceEvent& event = events.at(static_cast<size_t>(step_of(plan, OpKind::all_reduce)));
    EXPECT_EQ(event.lane, lane);
    EXPECT_GE(times.comm_ms, 1.0);
    EXPECT_DOUBLE_EQ(times.comm_ms, (event.end_us - event.begin_us) * 1e-3);
    double compute_us = 0;
    for (const TraceEvent& other : events) {
      if (other.step != event.step) compute_us += other.end_us - other.begin_us;
    }
    EXPECT_NEAR(times.compute_ms, compute_us * 1e-3, 1e-6);
    if (lane == Lane::compute) {
      EXPECT_NEAR(times.comm_exposed_ms, times.comm_ms, 1e-6);
    } else {
      EXPECT_LE(times.compute_ms + times.comm_exposed_ms, times.total_ms);
    }
  }
}

TEST(Collectives, WhatTheComputeLaneWaitsForIsExposed) {
  // The collective lasts until the compute lane has run everything that does not need it, and a
  // millisecond more, which must be waited for.
  const Plan plan = reduce_plan(Lane::comm);
  TestBackend backend;
  TestCommunicator communicator;
  const size_t free_steps = plan.programs[0].steps.size() - 2;
  communicator.work = [&] {
    for (bool done = false; !done;) {
      const std::lock_guard lock(backend.mutex);
      done = backend.executed.size() == free_steps;
    }
    burn_a_millisecond();
  };
  Session session(plan, backend, &communicator);
  const RunTimes times = session.run("train");
  EXPECT_GT(times.comm_exposed_ms, 0.0);
  EXPECT_LE(times.comm_exposed_ms, times.total_ms);
}

TEST(Collectives, AnErrorWakesALaneThatWaitsForItsPeers) {
  const Plan plan = reduce_plan(Lane::comm);
  TestBackend backend;
  backend.failing = OpKind::activation;
  TestCommunicator communicator;
  std::atomic<bool> waiting{false};
  communicator.work = [&] {
    waiting = true;
    waiting.notify_all();
    communicator.wait_for_abort();
  };
  // The first activation feeds the collective; the next one fails while the collective waits.
  int calls = 0;
  backend.failure = [&] {
    if (++calls == 1) return;
    waiting.wait(false);
    throw ResourceError("kernel", "no memory");
  };
  Session session(plan, backend, &communicator);
  try {
    session.run("train");
    FAIL() << "no error";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("no memory"), std::string::npos);
  }
  ASSERT_FALSE(communicator.causes.empty());
  EXPECT_NE(communicator.causes[0].find("no memory"), std::string::npos) << communicator.causes[0];
  EXPECT_NE(communicator.causes[0].find("rank 0"), std::string::npos) << communicator.causes[0];
}

TEST(Collectives, AFailedPeerIsAPeerError) {
  for (const Lane lane : {Lane::comm, Lane::compute}) {
    const Plan plan = reduce_plan(lane);
    TestBackend backend;
    TestCommunicator communicator;
    communicator.work = [] { throw PeerError("rank 1", "got killed"); };
    Session session(plan, backend, &communicator);
    try {
      session.run("train");
      FAIL() << "no error";
    } catch (const PeerError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("operator all_reduce, scope norm"), std::string::npos) << text;
      EXPECT_NE(text.find("got killed"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace weft
