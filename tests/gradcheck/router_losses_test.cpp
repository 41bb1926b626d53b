// The losses of the router join its gradient, not the loss (docs/moe.md): what router_grad adds for
// them against differences of the losses in the stats, in f64 on ref.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/run_kernel.h"
#include "weft/base/rng.h"
#include "weft/ops/ops.h"

namespace weft::test {
namespace {

constexpr int64_t B = 3, S = 5, H = 7, E = 6, K = 2;
constexpr double kAux = 0.75;

HostTensor random(Shape shape, const char* name) {
  HostTensor tensor({DType::f64, std::move(shape)});
  const RngStream stream(23, name);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, stream.normal(static_cast<uint64_t>(i)));
  }
  return tensor;
}

HostTensor moved(HostTensor tensor, const HostTensor& direction, double step) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, tensor.get(i) + step * direction.get(i));
  }
  return tensor;
}

double dot(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.get(i) * b.get(i);
  return sum;
}

struct Losses {
  std::string score;
  double balance, z_loss;
};

class RouterLosses : public testing::TestWithParam<Losses> {
 protected:
  Attrs attrs() const {
    return {{"top_k", K},
            {"score", GetParam().score},
            {"normalize", true},
            {"balance", GetParam().balance},
            {"z_loss", GetParam().z_loss}};
  }
  std::vector<HostTensor> route(const HostTensor& x, const HostTensor& w) {
    const std::vector<HostTensor> inputs = {x, w, lengths_, bias_, HostTensor()};
    return run_kernel(*ref_, make_spec(OpKind::router, attrs(), inputs), inputs).outputs;
  }
  /// The losses of all sequences.
  double objective(const HostTensor& x, const HostTensor& w) {
    const HostTensor stats = route(x, w)[5];
    double sum = 0;
    for (int64_t b = 0; b < B; ++b) {
      sum += GetParam().balance * stats.get(b * (E + kRouterStats) + E + 1);
      sum += GetParam().z_loss * stats.get(b * (E + kRouterStats) + E + 2);
    }
    return kAux * sum;
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref", {});
  HostTensor x_ = random({B, S, H}, "x"), w_ = random({E, H}, "w"), bias_ = random({E}, "bias");
  HostTensor lengths_{{DType::i32, {B}}, {5, 3, 0}};
};

TEST_P(RouterLosses, JoinTheGradient) {
  const std::vector<HostTensor> routed = route(x_, w_);
  const std::vector<HostTensor> inputs = {
      x_,          w_,        lengths_,  HostTensor({DType::f64, {1}}, {kAux}),
      routed[0],   routed[3], routed[5], HostTensor(),
      HostTensor()};
  const auto grads = run_kernel(*ref_, make_spec(OpKind::router_grad, attrs(), inputs), inputs);
  const HostTensor along_x = random(x_.type.shape, "along x");
  const HostTensor along_w = random(w_.type.shape, "along w");
  constexpr double kStep = 1e-6;
  const double dx =
      (objective(moved(x_, along_x, kStep), w_) - objective(moved(x_, along_x, -kStep), w_)) /
      (2 * kStep);
  const double dw =
      (objective(x_, moved(w_, along_w, kStep)) - objective(x_, moved(w_, along_w, -kStep))) /
      (2 * kStep);
  EXPECT_GT(std::abs(dx), 1e-3);
  EXPECT_NEAR(dot(grads.outputs[0], along_x), dx, 1e-7 * std::abs(dx) + 1e-8);
  EXPECT_NEAR(dot(grads.outputs[1], along_w), dw, 1e-7 * std::abs(dw) + 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Of, RouterLosses,
                         testing::Values(Losses{"softmax", 1, 0}, Losses{"softmax", 0, 1},
                                         Losses{"softmax", 0.5, 0.25}, Losses{"sigmoid", 1, 0},
                                         Losses{"sigmoid", 0, 1}, Losses{"sigmoid", 0.5, 0.25}));

}  // namespace
}  // namespace weft::test
