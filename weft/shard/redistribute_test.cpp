// Routes between random placements, run on real data among threads: the value stays the same, and
// what moved is what the route and the plan say.
#include "weft/shard/redistribute.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/run_kernel.h"
#include "weft/backend/backend.h"
#include "weft/base/check.h"
#include "weft/comm/launch.h"
#include "weft/ops/collective.h"
#include "weft/shard/shard_test_util.h"

namespace weft {
namespace {

using test::HostTensor;

/// Price of a call in the search, in bytes.
constexpr double kBytesPerCall = 64;

struct Trial {
  Mesh mesh;
  TensorType type;
  Placement from;
  Placement to;

  std::string text() const {
    std::string axes;
    for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
      axes += mesh.name(axis) + std::to_string(mesh.size(axis));
    }
    return axes + " " + shape_text(type.shape) + " " + placement_text(from, mesh) + " to " +
           placement_text(to, mesh);
  }
};

/// `to` may stay partial over axes `from` is partial over.
Trial random_trial(Draws& draws) {
  Trial trial{random_mesh(draws), {DType::f64, random_shape(draws)}, {}, {}};
  uint32_t partial = 0;
  for (AxisId axis = 0; axis < trial.mesh.num_axes(); ++axis) {
    if (draws.chance(3)) partial |= 1U << axis;
  }
  trial.from = random_cuts(draws, trial.type.shape, trial.mesh, partial);
  trial.from.partial = partial;
  if (draws.chance(4)) trial.from.reduction = Reduction::logsumexp;
  for (AxisId axis = 0; axis < trial.mesh.num_axes(); ++axis) {
    if (draws.chance(2)) partial &= ~(1U << axis);
  }
  trial.to = random_cuts(draws, trial.type.shape, trial.mesh, partial);
  trial.to.partial = partial;
  trial.to.reduction = trial.from.reduction;
  trial.from = canonical(trial.from, trial.type.shape, trial.mesh);
  trial.to = canonical(trial.to, trial.type.shape, trial.mesh);
  return trial;
}

/// The part of element `element` that `rank` has: depends on its coordinates along partial axes
/// only; a small integer, so that sums are exact.
double part(const Trial& trial, int64_t rank, int64_t element) {
  uint64_t key = static_cast<uint64_t>(element) + 1;
  for (AxisId axis = 0; axis < trial.mesh.num_axes(); ++axis) {
    const bool partial = trial.from.is_partial(axis);
    key = key * 7 + (partial ? static_cast<uint64_t>(trial.mesh.coord(rank, axis)) : 0);
  }
  const auto value = static_cast<double>(1 + RngStream(key).below(0, 1000));
  return trial.from.reduction == Reduction::logsumexp ? std::log(value) : value;
}

/// What `rank` must have of the element in the end: parts combined over what is partial no more.
double combined(const Trial& trial, int64_t rank, int64_t element) {
  const bool logarithms = trial.from.reduction == Reduction::logsumexp;
  double sum = 0;
  for (int64_t other = 0; other < trial.mesh.world(); ++other) {
    bool counts = true;
    for (AxisId axis = 0; axis < trial.mesh.num_axes(); ++axis) {
      const bool reduced = trial.from.is_partial(axis) && !trial.to.is_partial(axis);
      counts = counts && (reduced || trial.mesh.coord(other, axis) == trial.mesh.coord(rank, axis));
    }
    if (!counts) continue;
    const double value = part(trial, other, element);
    sum += logarithms ? std::exp(value) : value;
  }
  return logarithms ? std::log(sum) : sum;
}

struct RankOutcome {
  std::string fault;
  std::map<std::string, int64_t> received;
  std::map<std::string, int64_t> planned;
};

HostTensor run_collective(Communicator& ranks, const KernelSpec& spec, const HostTensor& input,
                          const std::vector<int32_t>& group) {
  HostTensor output(spec.outputs[0]);
  std::vector<std::byte> workspace(
      static_cast<size_t>(collective_workspace_bytes(collective_spec(spec))));
  const void* in = input.bytes.data();
  void* out = output.bytes.data();
  ranks.prepare(spec, group)->run({{&in, 1}, {&out, 1}, workspace.data()});
  return output;
}

RankOutcome run_rank(const Trial& trial, Communicator& ranks) {
  const Mesh& mesh = trial.mesh;
  const int64_t rank = ranks.rank();
  RankOutcome outcome;
  Router router(mesh);
  Graph graph;
  const Shape local = local_shape(trial.type.shape, trial.from, mesh, rank);
  ValueId value = graph.add_input("x", {DType::f64, local});
  Placement here = trial.from;
  for (const Move& move : router.route(trial.type, trial.from, trial.to).moves) {
    value = emit_move(graph, value, trial.type, here, move, mesh, rank);
    here = move.after;
    const Shape expected = local_shape(trial.type.shape, here, mesh, rank);
    WEFT_CHECK(graph.type(value).shape == expected, "test", "{}: got {}, expected {}", trial.text(),
               shape_text(graph.type(value).shape), shape_text(expected));
  }

  const auto backend = make_backend("ref", {});
  HostTensor data({DType::f64, local});
  const std::vector<int64_t> held = held_elements(trial.type.shape, trial.from, mesh, rank);
  for (size_t i = 0; i < held.size(); ++i) {
    data.set(static_cast<int64_t>(i), part(trial, rank, held[i]));
  }
  for (const Node& node : graph.nodes()) {
    const KernelSpec spec{node.op, node.attrs, graph.input_types(node), graph.output_types(node)};
    if (!op_def(node.op).collective) {
      data = test::run_kernel(*backend, spec, {data}).outputs[0];
      continue;
    }
    const std::string axis = node.attrs.get_string("axis");
    outcome.planned[axis] += received_bytes(collective_spec(spec));
    data = run_collective(ranks, spec, data, mesh.group(rank, mesh.find(axis)));
  }
  outcome.received = ranks.received();

  const std::vector<int64_t> wanted = held_elements(trial.type.shape, trial.to, mesh, rank);
  if (data.size() != static_cast<int64_t>(wanted.size())) outcome.fault = "wrong size";
  for (size_t i = 0; i < wanted.size() && outcome.fault.empty(); ++i) {
    const double expected = combined(trial, rank, wanted[i]);
    const double got = data.get(static_cast<int64_t>(i));
    const double tolerance = trial.from.reduction == Reduction::sum ? 0 : 1e-12;
    if (!(std::abs(got - expected) <= tolerance)) {
      outcome.fault = fmt::format("element {} is {}, expected {}", wanted[i], got, expected);
    }
  }
  return outcome;
}

/// All pieces of all placements on the way have equal sizes, and so have those of their sums.
bool is_even(const Trial& trial, const Route& route) {
  const auto even = [&](const Placement& placement, int64_t ways) {
    const int64_t first = num_elements(local_shape(trial.type.shape, placement, trial.mesh, 0));
    for (int64_t rank = 0; rank < trial.mesh.world(); ++rank) {
      const int64_t size = num_elements(local_shape(trial.type.shape, placement, trial.mesh, rank));
      if (size != first || size % ways != 0) return false;
    }
    return true;
  };
  Placement here = trial.from;
  for (const Move& move : route.moves) {
    const bool sums = move.kind == MoveKind::all_reduce || move.kind == MoveKind::all_to_all;
    if (!even(here, sums ? trial.mesh.size(move.axis) : 1) || !even(move.after, 1)) return false;
    here = move.after;
  }
  return true;
}

TEST(Redistribute, RandomRoutesKeepTheValueAndMoveWhatTheySay) {
  Draws draws(3);
  int moved = 0;
  int even = 0;
  for (int number = 0; number < 250; ++number) {
    const Trial trial = random_trial(draws);
    SCOPED_TRACE(fmt::format("trial {}: {}", number, trial.text()));
    const auto world = static_cast<int>(trial.mesh.world());
    std::vector<RankOutcome> outcomes(static_cast<size_t>(world));
    run_ranks({.world = world}, [&](Communicator& ranks) {
      outcomes[static_cast<size_t>(ranks.rank())] = run_rank(trial, ranks);
      return 0;
    });
    Router router(trial.mesh);
    const Route& route = router.route(trial.type, trial.from, trial.to);
    const bool all_even = is_even(trial, route);
    moved += route.bytes > 0 ? 1 : 0;
    even += route.bytes > 0 && all_even ? 1 : 0;
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.fault, "");
      int64_t bytes = 0;
      for (const auto& [axis, count] : outcome.received) {
        const auto planned = outcome.planned.find(axis);
        EXPECT_EQ(count, planned == outcome.planned.end() ? 0 : planned->second) << axis;
        bytes += count;
      }
      for (const auto& [axis, count] : outcome.planned) {
        EXPECT_EQ(count, outcome.received.contains(axis) ? outcome.received.at(axis) : 0) << axis;
      }
      if (all_even) {
        EXPECT_EQ(static_cast<double>(bytes), route.bytes);
      }
    }
  }
  EXPECT_GT(moved, 100);
  EXPECT_GT(even, 25);
}

/// Sums everything, gathers everything, cuts what is wanted.
double naive_price(const Trial& trial) {
  const Mesh& mesh = trial.mesh;
  double price = 0;
  Placement here = trial.from;
  const auto size = [&](AxisId axis) { return static_cast<double>(mesh.size(axis)); };
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (!here.is_partial(axis) || trial.to.is_partial(axis)) continue;
    const double bytes = local_bytes(trial.type, here, mesh);
    price += 2 * bytes / size(axis) * (size(axis) - 1) + kBytesPerCall;
    here.partial &= ~(1U << axis);
  }
  const auto gather_all = [&](std::vector<AxisId>& axes) {
    while (!axes.empty()) {
      const AxisId axis = axes.back();
      price += local_bytes(trial.type, here, mesh) * (size(axis) - 1) + kBytesPerCall;
      axes.pop_back();
    }
  };
  gather_all(here.flat);
  for (DimCut& dim : here.dims) gather_all(dim.axes);
  for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
    if (trial.to.cuts(axis)) price += kBytesPerCall;
  }
  return price;
}

TEST(Redistribute, NeverWorseThanSummingAndGatheringEverything) {
  Draws draws(4);
  int better = 0;
  for (int number = 0; number < 2000; ++number) {
    const Trial trial = random_trial(draws);
    Router router(trial.mesh);
    const Route& route = router.route(trial.type, trial.from, trial.to);
    const double price = route.bytes + kBytesPerCall * static_cast<double>(route.moves.size());
    const double naive = naive_price(trial);
    EXPECT_LE(price, naive * (1 + 1e-12)) << trial.text();
    better += price < naive ? 1 : 0;
    if (trial.from == trial.to) {
      EXPECT_TRUE(route.moves.empty());
    }
  }
  EXPECT_GT(better, 400);
}

/// Kinds of the moves of a route, one letter each.
std::string kinds(const Mesh& mesh, const Shape& shape, const Placement& from,
                  const Placement& to) {
  Router router(mesh);
  std::string text;
  for (const Move& move : router.route({DType::f32, shape}, from, to).moves) {
    text += std::string_view("sgraA")[static_cast<size_t>(move.kind)];
  }
  return text;
}

TEST(Redistribute, KnownRoutes) {
  const Mesh mesh({{"op", 4}});
  const Shape shape = {64, 64};
  const Placement whole = whole_placement(2);
  Placement rows = whole;
  rows.dims[0].axes = {0};
  Placement columns = whole;
  columns.dims[1].axes = {0};
  Placement flat = whole;
  flat.flat = {0};
  Placement partial = whole;
  partial.partial = 1;
  EXPECT_EQ(kinds(mesh, shape, whole, whole), "");
  EXPECT_EQ(kinds(mesh, shape, whole, rows), "s");
  EXPECT_EQ(kinds(mesh, shape, rows, whole), "g");
  EXPECT_EQ(kinds(mesh, shape, rows, columns), "A");
  EXPECT_EQ(kinds(mesh, shape, rows, flat), "gs");
  EXPECT_EQ(kinds(mesh, shape, partial, whole), "a");
  EXPECT_EQ(kinds(mesh, shape, partial, rows), "r");
  EXPECT_EQ(kinds(mesh, shape, partial, flat), "r");
}

TEST(Redistribute, RefusesWhatCannotBe) {
  const Mesh mesh({{"op", 2}});
  Router router(mesh);
  Placement partial = whole_placement(1);
  partial.partial = 1;
  EXPECT_THROW(router.route({DType::f32, {8}}, whole_placement(1), partial), BugError);
}

}  // namespace
}  // namespace weft
