// attention and its gradient. Causal, grouped heads, optional window and segments.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

/// Extents and masks shared by both directions.
struct Geometry {
  int64_t B, S, N, G, D, window;
  double scale;
  const int32_t* segments;  // nullptr = one segment

  Geometry(const Call& call, const int32_t* segment_ids)
      : B(call.shape(0)[0]),
        S(call.shape(0)[1]),
        N(call.attrs().get_int("num_heads")),
        G(call.attrs().get_int("num_kv_heads")),
        D(call.attrs().get_int("head_dim")),
        window(call.attrs().get_int("window", 0)),
        scale(call.attrs().get_double("scale")),
        segments(segment_ids) {}

  bool sees(int64_t b, int64_t i, int64_t j) const {
    return j <= i && (window <= 0 || i - j < window) &&
           (segments == nullptr || segments[b * S + i] == segments[b * S + j]);
  }
  int64_t q_at(int64_t b, int64_t i, int64_t n) const { return ((b * S + i) * N + n) * D; }
  int64_t kv_at(int64_t b, int64_t j, int64_t g) const { return ((b * S + j) * G + g) * D; }
  int64_t kv_head(int64_t n) const { return n / (N / G); }
};

double dot(const In& a, int64_t at_a, const In& b, int64_t at_b, int64_t count) {
  double sum = 0;
  for (int64_t d = 0; d < count; ++d) sum += a[at_a + d] * b[at_b + d];
  return sum;
}

// Workspace: the scores of one query.
void attention(const Call& call) {
  const In q = call.in(0), k = call.in(1), v = call.in(2);
  const Out o = call.out(0), lse_out = call.out(1);
  const Geometry geo(call, call.data<int32_t>(3));
  double* score = call.workspace();
  for (int64_t b = 0; b < geo.B; ++b) {
    for (int64_t n = 0; n < geo.N; ++n) {
      const int64_t g = geo.kv_head(n);
      for (int64_t i = 0; i < geo.S; ++i) {
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j <= i; ++j) {
          if (!geo.sees(b, i, j)) continue;
          score[j] = geo.scale * dot(q, geo.q_at(b, i, n), k, geo.kv_at(b, j, g), geo.D);
          largest = std::max(largest, score[j]);
        }
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          if (geo.sees(b, i, j)) sum += std::exp(score[j] - largest);
        }
        const double lse = largest + std::log(sum);
        lse_out.set((b * geo.N + n) * geo.S + i, lse);
        for (int64_t d = 0; d < geo.D; ++d) {
          double mix = 0;
          for (int64_t j = 0; j <= i; ++j) {
            if (geo.sees(b, i, j)) mix += std::exp(score[j] - lse) * v[geo.kv_at(b, j, g) + d];
          }
          o.set(geo.q_at(b, i, n) + d, mix);
        }
      }
    }
  }
}

int64_t attention_workspace(const KernelSpec& spec) { return spec.inputs[0].shape[1]; }

// With p_ij = exp(scale q_i k_j - lse_i) and e_ij = p_ij (do_i v_j - do_i o_i):
// dq_i = scale sum_j e_ij k_j, dk_j = scale sum_i e_ij q_i, dv_j = sum_i p_ij do_i, the last two
// also over the heads that share the kv head. Workspace: two rows of D sums.
void attention_grad(const Call& call) {
  const In q = call.in(0), k = call.in(1), v = call.in(2), o = call.in(4), lse = call.in(5);
  const In dout = call.in(6);
  const Out dq = call.out(0), dk = call.out(1), dv = call.out(2);
  const Geometry geo(call, call.data<int32_t>(3));
  const int64_t D = geo.D;
  double* sum_a = call.workspace();
  double* sum_b = sum_a + D;

  const auto weight = [&](int64_t b, int64_t n, int64_t i, int64_t j) {
    const int64_t at_kv = geo.kv_at(b, j, geo.kv_head(n));
    return std::exp(geo.scale * dot(q, geo.q_at(b, i, n), k, at_kv, D) -
                    lse[(b * geo.N + n) * geo.S + i]);
  };
  const auto score_grad = [&](int64_t b, int64_t n, int64_t i, int64_t j, double p) {
    const int64_t at_q = geo.q_at(b, i, n), at_kv = geo.kv_at(b, j, geo.kv_head(n));
    return geo.scale * p * (dot(dout, at_q, v, at_kv, D) - dot(dout, at_q, o, at_q, D));
  };

  for (int64_t b = 0; b < geo.B; ++b) {
    for (int64_t n = 0; n < geo.N; ++n) {
      for (int64_t i = 0; i < geo.S; ++i) {
        std::fill(sum_a, sum_a + D, 0.0);
        for (int64_t j = 0; j <= i; ++j) {
          if (!geo.sees(b, i, j)) continue;
          const double e = score_grad(b, n, i, j, weight(b, n, i, j));
          for (int64_t d = 0; d < D; ++d) sum_a[d] += e * k[geo.kv_at(b, j, geo.kv_head(n)) + d];
        }
        for (int64_t d = 0; d < D; ++d) dq.set(geo.q_at(b, i, n) + d, sum_a[d]);
      }
    }
    for (int64_t g = 0; g < geo.G; ++g) {
      for (int64_t j = 0; j < geo.S; ++j) {
        std::fill(sum_a, sum_a + 2 * D, 0.0);
        for (int64_t n = g * (geo.N / geo.G); n < (g + 1) * (geo.N / geo.G); ++n) {
          for (int64_t i = j; i < geo.S; ++i) {
            if (!geo.sees(b, i, j)) continue;
            const double p = weight(b, n, i, j);
            const double e = score_grad(b, n, i, j, p);
            for (int64_t d = 0; d < D; ++d) {
              sum_a[d] += e * q[geo.q_at(b, i, n) + d];
              sum_b[d] += p * dout[geo.q_at(b, i, n) + d];
            }
          }
        }
        for (int64_t d = 0; d < D; ++d) {
          dk.set(geo.kv_at(b, j, g) + d, sum_a[d]);
          dv.set(geo.kv_at(b, j, g) + d, sum_b[d]);
        }
      }
    }
  }
}

int64_t attention_grad_workspace(const KernelSpec& spec) {
  return 2 * spec.attrs.get_int("head_dim");
}

}  // namespace

RefKernel attention_kernel() { return {&attention, &attention_workspace}; }
RefKernel attention_grad_kernel() { return {&attention_grad, &attention_grad_workspace}; }

}  // namespace weft::ref
