// Rows of experts: dispatch, combine, grouped matmul and the gated activation; docs/moe.md.
#include <vector>

#include "weft/backend/expert_rows.h"
#include "weft/backend/ref/activate.h"
#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

void zero_unused(const ExpertRows& rows, const Out& out, int64_t width) {
  rows.for_unused([&](int64_t first, int64_t count) {
    for (int64_t i = first * width; i < (first + count) * width; ++i) out.set(i, 0.0);
  });
}

/// run(expert, row) for every row that belongs to a token.
template <class F>
void for_rows(const ExpertRows& rows, const F& run) {
  for (int64_t e = 0; e < rows.experts(); ++e) {
    for (int64_t b = 0; b < rows.sequences(); ++b) {
      const int64_t begin = rows.begin(e, b);
      for (int64_t i = 0; i < rows.count(e, b); ++i) run(e, begin + i);
    }
  }
}

// rows[slot(t, j)] = weights[t, j] x[t]
void dispatch(const Call& call) {
  const ExpertRows rows(call.attrs(), call.out_type(0), call.type(2), call.data<int32_t>(2));
  const In x = call.in(0), weights = call.in(3);
  const int32_t* slots = call.data<int32_t>(1);
  const Out out = call.out(0);
  const int64_t S = call.shape(1)[1], K = call.shape(1)[2], H = call.shape(0)[2];
  zero_unused(rows, out, H);
  for (int64_t i = 0; i < call.elements(1); ++i) {
    const int64_t t = i / K;
    const int64_t row = rows.row_of(t / S, slots[i]);
    if (row < 0) continue;
    const double weight = call.has(3) ? weights[i] : 1.0;
    for (int64_t h = 0; h < H; ++h) out.set(row * H + h, weight * x[t * H + h]);
  }
}

// y[t] = residual[t] + sum_j weights[t, j] rows[slot(t, j)]
void combine(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(2), call.data<int32_t>(2));
  const In in = call.in(0), weights = call.in(3), residual = call.in(4);
  const int32_t* slots = call.data<int32_t>(1);
  const Out y = call.out(0);
  const int64_t S = call.shape(1)[1], K = call.shape(1)[2], H = call.out_shape(0)[2];
  for (int64_t t = 0; t < call.shape(1)[0] * S; ++t) {
    for (int64_t h = 0; h < H; ++h) {
      double sum = 0;
      for (int64_t j = 0; j < K; ++j) {
        const int64_t row = rows.row_of(t / S, slots[t * K + j]);
        if (row >= 0) sum += (call.has(3) ? weights[t * K + j] : 1.0) * in[row * H + h];
      }
      y.set(t * H + h, (call.has(4) ? residual[t * H + h] : 0.0) + sum);
    }
  }
}

// dweights[t, j] = rows[slot(t, j)] . dy[t]
void combine_weight_grad(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(3), call.data<int32_t>(3));
  const In in = call.in(0), dy = call.in(1);
  const int32_t* slots = call.data<int32_t>(2);
  const Out out = call.out(0);
  const int64_t S = call.shape(2)[1], K = call.shape(2)[2], H = call.shape(1)[2];
  for (int64_t i = 0; i < call.elements(2); ++i) {
    const int64_t t = i / K;
    const int64_t row = rows.row_of(t / S, slots[i]);
    double sum = 0;
    for (int64_t h = 0; h < H && row >= 0; ++h) sum += in[row * H + h] * dy[t * H + h];
    out.set(i, sum);
  }
}

/// Element of the weight of expert e that joins inner index k and outer index o.
int64_t weight_at(bool transpose_w, int64_t e, int64_t k, int64_t o, int64_t K, int64_t O) {
  return e * K * O + (transpose_w ? o * K + k : k * O + o);
}

// y[r] = w[e]^T rows[r] for the rows r of expert e
void grouped_matmul(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(2), call.data<int32_t>(2));
  const In x = call.in(0), w = call.in(1);
  const Out y = call.out(0);
  const bool transpose_w = call.attrs().get_bool("transpose_w", true);
  const int64_t K = call.shape(0).back(), O = call.out_shape(0).back();
  zero_unused(rows, y, O);
  for_rows(rows, [&](int64_t e, int64_t r) {
    for (int64_t o = 0; o < O; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += x[r * K + k] * w[weight_at(transpose_w, e, k, o, K, O)];
      }
      y.set(r * O + o, sum);
    }
  });
}

// dw[e] = acc[e] + sum over the rows r of expert e of rows[r] (x) drows[r]
void grouped_matmul_wgrad(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(2), call.data<int32_t>(2));
  const In x = call.in(0), dy = call.in(1), acc = call.in(3);
  const Out dw = call.out(0);
  const bool transpose_w = call.attrs().get_bool("transpose_w", true);
  const int64_t K = call.shape(0).back(), O = call.shape(1).back();
  std::vector<double> sums(static_cast<size_t>(call.out_type(0).elements()), 0.0);
  for_rows(rows, [&](int64_t e, int64_t r) {
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t o = 0; o < O; ++o) {
        sums[static_cast<size_t>(weight_at(transpose_w, e, k, o, K, O))] +=
            x[r * K + k] * dy[r * O + o];
      }
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    dw.set(at, (call.has(3) ? acc[at] : 0.0) + sums[i]);
  }
}

void expert_glu(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(2), call.data<int32_t>(2));
  const std::string kind = call.attrs().get_string("kind");
  const In gate = call.in(0), up = call.in(1);
  const Out y = call.out(0);
  const int64_t width = call.shape(0).back();
  for_rows(rows, [&](int64_t, int64_t r) {
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      y.set(i, activate(kind, gate[i]).value * (call.has(1) ? up[i] : 1.0));
    }
  });
  zero_unused(rows, y, width);
}

void expert_glu_grad(const Call& call) {
  const ExpertRows rows(call.attrs(), call.type(0), call.type(3), call.data<int32_t>(3));
  const std::string kind = call.attrs().get_string("kind");
  const In gate = call.in(0), up = call.in(1), dy = call.in(2);
  const Out dgate = call.out(0), dup = call.out(1);
  const int64_t width = call.shape(0).back();
  for_rows(rows, [&](int64_t, int64_t r) {
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      const Point point = activate(kind, gate[i]);
      const double slope = dy[i] * (call.has(1) ? up[i] : 1.0) * point.slope;
      const double through = dy[i] * point.value;
      dgate.set(i, slope);
      dup.set(i, through);
    }
  });
  zero_unused(rows, dgate, width);
  zero_unused(rows, dup, width);
}

}  // namespace

RefKernel dispatch_kernel() { return {&dispatch}; }
RefKernel combine_kernel() { return {&combine}; }
RefKernel combine_weight_grad_kernel() { return {&combine_weight_grad}; }
RefKernel grouped_matmul_kernel() { return {&grouped_matmul}; }
RefKernel grouped_matmul_wgrad_kernel() { return {&grouped_matmul_wgrad}; }
RefKernel expert_glu_kernel() { return {&expert_glu}; }
RefKernel expert_glu_grad_kernel() { return {&expert_glu_grad}; }

}  // namespace weft::ref
