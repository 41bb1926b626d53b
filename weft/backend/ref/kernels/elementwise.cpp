// add, cast, activation, glu, dropout and their gradients. Every element reads all its inputs
// before it writes, so outputs may overwrite inputs of the same size.
#include <cmath>
#include <cstring>
#include <numbers>

#include "weft/backend/ref/activate.h"
#include "weft/backend/ref/ref_kernel.h"
#include "weft/base/rng.h"

namespace weft::ref {
namespace {

void add(const Call& call) {
  const In a = call.in(0), b = call.in(1);
  const Out y = call.out(0);
  for (int64_t i = 0; i < call.elements(0); ++i) y.set(i, a[i] + b[i]);
}

void cast(const Call& call) {
  const In x = call.in(0);
  const Out y = call.out(0);
  for (int64_t i = 0; i < call.elements(0); ++i) y.set(i, x[i]);
}

void activation(const Call& call) {
  const std::string kind = call.attrs().get_string("kind");
  const In x = call.in(0);
  const Out y = call.out(0);
  for (int64_t i = 0; i < call.elements(0); ++i) y.set(i, activate(kind, x[i]).value);
}

void activation_grad(const Call& call) {
  const std::string kind = call.attrs().get_string("kind");
  const In x = call.in(0), dy = call.in(1);
  const Out dx = call.out(0);
  for (int64_t i = 0; i < call.elements(0); ++i) dx.set(i, dy[i] * activate(kind, x[i]).slope);
}

void glu(const Call& call) {
  const std::string kind = call.attrs().get_string("kind");
  const In gate = call.in(0), up = call.in(1);
  const Out y = call.out(0);
  for (int64_t i = 0; i < call.elements(0); ++i) y.set(i, activate(kind, gate[i]).value * up[i]);
}

void glu_grad(const Call& call) {
  const std::string kind = call.attrs().get_string("kind");
  const In gate = call.in(0), up = call.in(1), dy = call.in(2);
  const Out dgate = call.out(0), dup = call.out(1);
  for (int64_t i = 0; i < call.elements(0); ++i) {
    const Point act = activate(kind, gate[i]);
    const double gate_grad = dy[i] * up[i] * act.slope;
    const double up_grad = dy[i] * act.value;
    dgate.set(i, gate_grad);
    dup.set(i, up_grad);
  }
}

// x [B,S,H], whose element (0, 0, 0) is (0, first_position, first_feature) of the whole; one Philox
// block serves four consecutive features of the whole.
void dropout(const Call& call) {
  const double p = call.attrs().get_double("p");
  const uint32_t threshold = dropout_threshold(p);
  const uint64_t key = dropout_key(static_cast<uint64_t>(call.attrs().get_int("seed")),
                                   static_cast<uint64_t>(call.data<int64_t>(1)[0]),
                                   static_cast<uint64_t>(call.attrs().get_int("site")));
  const int64_t first_position = call.attrs().get_int("first_position", 0);
  const int64_t first_feature = call.attrs().get_int("first_feature", 0);
  const int64_t* samples = call.data<int64_t>(2);
  const In x = call.in(0), residual = call.in(3);
  const Out y = call.out(0);
  const int64_t B = call.shape(0)[0], S = call.shape(0)[1], H = call.shape(0)[2];
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t s = 0; s < S; ++s) {
      for (int64_t h = 0; h < H; ++h) {
        const int64_t feature = first_feature + h;
        const PhiloxBlock block = dropout_block(key, static_cast<uint64_t>(samples[b]),
                                                static_cast<uint32_t>(first_position + s),
                                                static_cast<uint32_t>(feature / 4));
        const bool dropped = (block[static_cast<size_t>(feature % 4)] >> 8) < threshold;
        const int64_t i = (b * S + s) * H + h;
        const double base = call.has(3) ? residual[i] : 0.0;
        y.set(i, base + (dropped ? 0.0 : x[i] / (1.0 - p)));
      }
    }
  }
}

}  // namespace

RefKernel add_kernel() { return {&add}; }
RefKernel cast_kernel() { return {&cast}; }
RefKernel activation_kernel() { return {&activation}; }
RefKernel activation_grad_kernel() { return {&activation_grad}; }
RefKernel glu_kernel() { return {&glu}; }
RefKernel glu_grad_kernel() { return {&glu_grad}; }
RefKernel dropout_kernel() { return {&dropout}; }

}  // namespace weft::ref
