// What a layout moves: no more than the known best, and exactly what the plan says.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/layout/models.h"
#include "tests/layout/order.h"
#include "weft/ops/collective.h"

namespace weft::test {
namespace {

LayoutJob llama_job(int64_t layers, int64_t rows) {
  LayoutJob job;
  job.spec = tiny_model("llama", false, 257);
  job.spec.intermediate_size = 40;
  job.spec.num_layers = layers;
  job.spec.window.assign(static_cast<size_t>(layers), 0);
  job.batches = uneven_batches(2, rows, 8, 257);
  return job;
}

/// Calls per kind, and the bytes this rank receives, of one phase of one micro-batch over an axis.
struct Calls {
  int all_gather = 0;
  int reduce_scatter = 0;
  int other = 0;
  int64_t bytes = 0;

  Calls operator-(const Calls& b) const {
    return {all_gather - b.all_gather, reduce_scatter - b.reduce_scatter, other - b.other,
            bytes - b.bytes};
  }
  auto tied() const { return std::tie(all_gather, reduce_scatter, other, bytes); }
  bool operator==(const Calls& b) const { return tied() == b.tied(); }
};

std::ostream& operator<<(std::ostream& out, const Calls& calls) {
  return out << calls.all_gather << " all_gather, " << calls.reduce_scatter << " reduce_scatter, "
             << calls.other << " other, " << calls.bytes << " bytes";
}

/// Collectives of at least `least` elements as a whole: those of the residual.
Calls count_calls(const Plan& plan, Phase phase, int32_t micro, int64_t least) {
  Calls calls;
  for (const PlanStep& step : plan.program("train").steps) {
    if (!op_def(step.op).collective || step.phase != phase || step.micro != micro) continue;
    const CollectiveSpec spec =
        collective_spec({step.op, step.attrs, step.input_types, step.output_types});
    if (spec.axis != "op") continue;
    int64_t elements = 0;
    for (const CollectiveTensor& tensor : spec.tensors) elements += tensor.view.elements();
    if (elements < least) continue;
    if (spec.kind == CollectiveKind::all_gather) {
      ++calls.all_gather;
    } else if (spec.kind == CollectiveKind::reduce_scatter) {
      ++calls.reduce_scatter;
    } else {
      ++calls.other;
    }
    calls.bytes += received_bytes(spec);
  }
  return calls;
}

TEST(Cheapest, ALayerGathersAndScattersTwiceEachWay) {
  // Two micro-batches of 3 rows x 8 tokens x 16 features; each rank holds half of the residual.
  const Layout layout{.op = 2, .sequence = true, .accumulation = 2};
  const int64_t residual = 3 * 8 * 16;
  const Plan two = plan_layout(llama_job(2, 6), layout)[0];
  const Plan three = plan_layout(llama_job(3, 6), layout)[0];
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const int32_t micro : {0, 1}) {
      const Calls layer =
          count_calls(three, phase, micro, residual) - count_calls(two, phase, micro, residual);
      EXPECT_EQ(layer, (Calls{2, 2, 0, 4 * (residual / 2) * 4}))
          << phase_name(phase) << " of micro-batch " << micro;
    }
  }
}

TEST(Cheapest, WithoutSequenceALayerSumsTwiceEachWay) {
  const Layout layout{.op = 2};
  const int64_t residual = 6 * 8 * 16;
  const Plan two = plan_layout(llama_job(2, 6), layout)[0];
  const Plan three = plan_layout(llama_job(3, 6), layout)[0];
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const Calls layer =
        count_calls(three, phase, 0, residual) - count_calls(two, phase, 0, residual);
    EXPECT_EQ(layer, (Calls{0, 0, 2, 2 * residual * 4})) << phase_name(phase);
  }
}

TEST(Cheapest, CountersOfTheRanksAreTheTrafficOfThePlan) {
  const LayoutJob job = llama_job(2, 12);
  for (const Layout& layout :
       {Layout{.op = 2, .sequence = true}, Layout{.op = 3, .sequence = true, .accumulation = 2},
        Layout{.data = 2, .op = 2, .sequence = true, .zero = 1},
        Layout{.data = 3, .op = 2, .zero = 2, .accumulation = 2},
        Layout{.data = 2, .op = 4, .sequence = true, .zero = 3}}) {
    SCOPED_TRACE(layout_name(layout));
    const LayoutResult result = run_layout(job, layout);
    for (const std::string& fault : result.faults) ADD_FAILURE() << fault;
    for (size_t rank = 0; rank < result.plans.size(); ++rank) {
      const auto& traffic = result.plans[rank].traffic;
      ASSERT_EQ(traffic.size(), result.plans[rank].mesh.size());
      for (const auto& [axis, bytes] : traffic) {
        EXPECT_GT(bytes, 0);
        EXPECT_EQ(result.received[rank].at(axis), 2 * bytes) << axis << " of rank " << rank;
      }
    }
  }
}

TEST(Cheapest, TheVerdictTakesOneCallPerAxis) {
  for (const int64_t zero : {0, 1, 3}) {
    const Layout layout{.data = 2, .op = 2, .sequence = true, .zero = zero};
    std::map<std::string, int> calls;
    const Plan plan = plan_layout(llama_job(3, 4), layout)[0];
    for (const PlanStep& step : plan.program("train").steps) {
      if (!op_def(step.op).collective || step.phase != Phase::verdict) continue;
      ++calls[step.attrs.get_string("axis")];
    }
    EXPECT_EQ(calls["op"], 1) << layout_name(layout);
    EXPECT_EQ(calls["data"], zero == 0 ? 0 : 1) << layout_name(layout);
  }
}

TEST(Cheapest, AnotherOrderOnOneRankIsSeen) {
  const std::vector<Plan> plans =
      plan_layout(llama_job(1, 4), {.data = 2, .op = 2, .sequence = true, .zero = 3});
  EXPECT_TRUE(order_faults(plans).empty());
  const auto is_collective = [](const PlanStep& step) { return op_def(step.op).collective; };
  std::vector<Plan> dropped = plans;
  auto& fewer = dropped[3].programs[0].steps;
  fewer.erase(std::find_if(fewer.begin(), fewer.end(), is_collective));
  EXPECT_FALSE(order_faults(dropped).empty());
  // Two groups that wait for each other: rank 0 goes to op first, rank 1 to data.
  std::vector<Plan> crossed = plans;
  for (size_t rank = 0; rank < crossed.size(); ++rank) {
    auto& steps = crossed[rank].programs[0].steps;
    std::vector<PlanStep> calls(2);
    for (const char* axis : {"op", "data"}) {
      const auto found = std::find_if(steps.begin(), steps.end(), [&](const PlanStep& step) {
        return is_collective(step) && step.attrs.get_string("axis") == axis;
      });
      const bool first = (axis == std::string("op")) == (rank == 0 || rank == 3);
      calls[first ? 0 : 1] = *found;
    }
    steps = calls;
  }
  const std::vector<std::string> faults = order_faults(crossed);
  EXPECT_TRUE(std::any_of(faults.begin(), faults.end(), [](const std::string& fault) {
    return fault.find("waits for ever") != std::string::npos;
  }));
}

/// Bytes per rank and step over data, for every stage.
TEST(Cheapest, ZeroMovesWhatItsTableSays) {
  const LayoutJob job = llama_job(2, 12);
  int64_t parameters = 0;
  for (const ParamSpec& parameter : model_parameters(job.spec)) {
    parameters += num_elements(parameter.shape);
  }
  const auto traffic = [&](int64_t zero, int64_t accumulation) {
    const Layout layout{.data = 2, .zero = zero, .accumulation = accumulation};
    int64_t sum = 0;
    for (const Plan& plan : plan_layout(job, layout)) sum += plan.traffic.at("data");
    return static_cast<double>(sum) / 2;
  };
  const double half = static_cast<double>(parameters) * 4 / 2;  // bytes of half the model
  const double slack = 2000;                                    // losses, norms
  for (const int64_t accumulation : {1, 3}) {
    const auto micros = static_cast<double>(accumulation);
    EXPECT_NEAR(traffic(0, accumulation), 2 * half, slack);
    EXPECT_NEAR(traffic(1, accumulation), 2 * half, slack);
    EXPECT_NEAR(traffic(2, accumulation), (micros + 1) * half, slack);
    EXPECT_LE(traffic(3, accumulation), 3 * micros * half + slack);
    EXPECT_GE(traffic(3, accumulation), 2 * micros * half);
  }
}

TEST(Cheapest, TheSwappedPairCostsMore) {
  const Layout layout{.data = 2, .op = 2};
  LayoutJob job = llama_job(2, 12);
  job.spec = tiny_model("gpt2", false, 257);
  const Plan usual = plan_layout(job, layout)[0];
  EXPECT_TRUE(std::none_of(usual.advice.begin(), usual.advice.end(), [](const std::string& text) {
    return text.find("[parallel.shard]") != std::string::npos;
  }));
  // As written, the pair of a feed-forward layer; its parts exchanged.
  job.shard = {{"transformer.h.*.mlp.c_fc", {}, "((dp,1),(1,op))"},
               {"transformer.h.*.mlp.c_proj", {}, "((dp,op),(op,1))"}};
  const Plan pair = plan_layout(job, layout)[0];
  EXPECT_EQ(pair.traffic, usual.traffic);
  job.shard = {{"transformer.h.*.mlp.c_fc", {}, "((dp,op),(op,1))"},
               {"transformer.h.*.mlp.c_proj", {}, "((dp,1),(1,op))"}};
  const Plan swapped = plan_layout(job, layout)[0];
  fmt::print("bytes over op per step: usual {}, swapped pair {}\n", usual.traffic.at("op"),
             swapped.traffic.at("op"));
  EXPECT_GT(swapped.traffic.at("op"), usual.traffic.at("op") * 5 / 4);
  EXPECT_TRUE(
      std::any_of(swapped.advice.begin(), swapped.advice.end(), [](const std::string& text) {
        return text.find("[parallel.shard] moves") != std::string::npos;
      }));
  // It is dear, not wrong.
  job = tiny_job(job.spec, "sgd", "ref", "fp64");
  const LayoutResult one = run_layout(job, {});
  job.shard = {{"transformer.h.*.mlp.c_fc", {}, "((dp,op),(op,1))"},
               {"transformer.h.*.mlp.c_proj", {}, "((dp,1),(1,op))"}};
  expect_one_model(job, run_layout(job, layout), one, kTight);
}

}  // namespace
}  // namespace weft::test
