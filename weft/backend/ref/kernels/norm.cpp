// rmsnorm, layernorm and their gradients. A group is D (or H) consecutive features; x holds
// num_elements / D groups.
#include <cmath>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

// y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps)
void rmsnorm(const Call& call) {
  const In x = call.in(0), w = call.in(1);
  const Out y = call.out(0), rstd_out = call.out(1);
  const double eps = call.attrs().get_double("eps");
  const int64_t D = call.shape(1)[0];
  for (int64_t g = 0; g < call.elements(0) / D; ++g) {
    double squares = 0;
    for (int64_t d = 0; d < D; ++d) squares += x[g * D + d] * x[g * D + d];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(D) + eps);
    rstd_out.set(g, rstd);
    for (int64_t d = 0; d < D; ++d) y.set(g * D + d, x[g * D + d] * rstd * w[d]);
  }
}

// With n = x rstd and t = dy w: dx = rstd (t - n mean(t n)), dw = sum over groups of dy n.
void rmsnorm_grad(const Call& call) {
  const In x = call.in(0), w = call.in(1), rstd = call.in(2), dy = call.in(3);
  const In addend = call.in(4), acc = call.in(5);
  const Out dx = call.out(0), dw = call.out(1);
  const int64_t D = call.shape(1)[0], groups = call.elements(0) / D;
  for (int64_t d = 0; d < D; ++d) {
    double sum = call.has(5) ? acc[d] : 0.0;
    for (int64_t g = 0; g < groups; ++g) sum += dy[g * D + d] * x[g * D + d] * rstd[g];
    dw.set(d, sum);
  }
  for (int64_t g = 0; g < groups; ++g) {
    double mean_tn = 0;
    for (int64_t d = 0; d < D; ++d) {
      mean_tn += dy[g * D + d] * w[d] * x[g * D + d] * rstd[g] / static_cast<double>(D);
    }
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = g * D + d;
      const double grad = rstd[g] * (dy[i] * w[d] - x[i] * rstd[g] * mean_tn);
      dx.set(i, grad + (call.has(4) ? addend[i] : 0.0));
    }
  }
}

// y = (x - mean) rstd w + b, rstd = 1 / sqrt(variance + eps)
void layernorm(const Call& call) {
  const In x = call.in(0), w = call.in(1), b = call.in(2);
  const Out y = call.out(0), mean_out = call.out(1), rstd_out = call.out(2);
  const double eps = call.attrs().get_double("eps");
  const int64_t H = call.shape(1)[0];
  for (int64_t r = 0; r < call.elements(0) / H; ++r) {
    double mean = 0;
    for (int64_t h = 0; h < H; ++h) mean += x[r * H + h] / static_cast<double>(H);
    double variance = 0;
    for (int64_t h = 0; h < H; ++h) {
      variance += (x[r * H + h] - mean) * (x[r * H + h] - mean) / static_cast<double>(H);
    }
    const double rstd = 1.0 / std::sqrt(variance + eps);
    mean_out.set(r, mean);
    rstd_out.set(r, rstd);
    for (int64_t h = 0; h < H; ++h) y.set(r * H + h, (x[r * H + h] - mean) * rstd * w[h] + b[h]);
  }
}

// With n = (x - mean) rstd and t = dy w: dx = rstd (t - mean(t) - n mean(t n)),
// dw = sum over rows of dy n, db = sum over rows of dy.
void layernorm_grad(const Call& call) {
  const In x = call.in(0), w = call.in(1), mean = call.in(2), rstd = call.in(3), dy = call.in(4);
  const In addend = call.in(5), acc_w = call.in(6), acc_b = call.in(7);
  const Out dx = call.out(0), dw = call.out(1), db = call.out(2);
  const int64_t H = call.shape(1)[0], rows = call.elements(0) / H;
  const auto normed = [&](int64_t r, int64_t h) { return (x[r * H + h] - mean[r]) * rstd[r]; };
  for (int64_t h = 0; h < H; ++h) {
    double sum_w = call.has(6) ? acc_w[h] : 0.0;
    double sum_b = call.has(7) ? acc_b[h] : 0.0;
    for (int64_t r = 0; r < rows; ++r) {
      sum_w += dy[r * H + h] * normed(r, h);
      sum_b += dy[r * H + h];
    }
    dw.set(h, sum_w);
    db.set(h, sum_b);
  }
  for (int64_t r = 0; r < rows; ++r) {
    double mean_t = 0;
    double mean_tn = 0;
    for (int64_t h = 0; h < H; ++h) {
      const double t = dy[r * H + h] * w[h];
      mean_t += t / static_cast<double>(H);
      mean_tn += t * normed(r, h) / static_cast<double>(H);
    }
    for (int64_t h = 0; h < H; ++h) {
      const int64_t i = r * H + h;
      const double grad = rstd[r] * (dy[i] * w[h] - mean_t - normed(r, h) * mean_tn);
      dx.set(i, grad + (call.has(5) ? addend[i] : 0.0));
    }
  }
}

}  // namespace

RefKernel rmsnorm_kernel() { return {&rmsnorm}; }
RefKernel rmsnorm_grad_kernel() { return {&rmsnorm_grad}; }
RefKernel layernorm_kernel() { return {&layernorm}; }
RefKernel layernorm_grad_kernel() { return {&layernorm_grad}; }

}  // namespace weft::ref
