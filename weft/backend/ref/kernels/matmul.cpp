// matmul, its weight gradient, and the bias gradient. The gradient of x is a matmul by itself with
// transpose_w turned.
#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

/// Element of w that joins inner index k and outer index o.
int64_t weight_index(bool transpose_w, int64_t k, int64_t o, int64_t K, int64_t O) {
  return transpose_w ? o * K + k : k * O + o;
}

// y[r, o] = sum_k x[r, k] w(k, o) + bias[o] + residual[r, o]
void matmul(const Call& call) {
  const In x = call.in(0), w = call.in(1), bias = call.in(2), residual = call.in(3);
  const Out y = call.out(0);
  const bool transpose_w = call.attrs().get_bool("transpose_w", true);
  const int64_t rows = num_rows(call.shape(0));
  const int64_t K = call.shape(0).back(), O = call.out_shape(0).back();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < O; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += x[r * K + k] * w[weight_index(transpose_w, k, o, K, O)];
      }
      if (call.has(2)) sum += bias[o];
      if (call.has(3)) sum += residual[r * O + o];
      y.set(r * O + o, sum);
    }
  }
}

// dw(k, o) = acc(k, o) + sum_r x[r, k] dy[r, o]
void matmul_wgrad(const Call& call) {
  const In x = call.in(0), dy = call.in(1), acc = call.in(2);
  const Out dw = call.out(0);
  const bool transpose_w = call.attrs().get_bool("transpose_w", true);
  const int64_t rows = num_rows(call.shape(0));
  const int64_t K = call.shape(0).back(), O = call.shape(1).back();
  for (int64_t k = 0; k < K; ++k) {
    for (int64_t o = 0; o < O; ++o) {
      const int64_t at = weight_index(transpose_w, k, o, K, O);
      double sum = call.has(2) ? acc[at] : 0.0;
      for (int64_t r = 0; r < rows; ++r) sum += x[r * K + k] * dy[r * O + o];
      dw.set(at, sum);
    }
  }
}

// db[o] = acc[o] + sum_r dy[r, o]
void bias_grad(const Call& call) {
  const In dy = call.in(0), acc = call.in(1);
  const Out db = call.out(0);
  const int64_t rows = num_rows(call.shape(0)), O = call.shape(0).back();
  for (int64_t o = 0; o < O; ++o) {
    double sum = call.has(1) ? acc[o] : 0.0;
    for (int64_t r = 0; r < rows; ++r) sum += dy[r * O + o];
    db.set(o, sum);
  }
}

}  // namespace

RefKernel matmul_kernel() { return {&matmul}; }
RefKernel matmul_wgrad_kernel() { return {&matmul_wgrad}; }
RefKernel bias_grad_kernel() { return {&bias_grad}; }

}  // namespace weft::ref
