// cross_entropy, its stages and gradient, and the forms fused with the output projection. The loss
// is the sum over rows whose label is not -100 of lse - logit[label].
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

constexpr int32_t kIgnored = -100;

int64_t checked_label(int32_t label, int64_t V) {
  WEFT_CHECK(label >= 0 && label < V, "ref.cross_entropy", "label {} of {} classes", label, V);
  return label;
}

/// The columns of the whole vocabulary that this call has: all of them, or with first_column a
/// piece.
struct Columns {
  int64_t first, count;
  bool piece;

  Columns(const Attrs& attrs, int64_t columns)
      : first(attrs.get_int("first_column", 0)),
        count(columns),
        piece(attrs.contains("first_column")) {}

  /// Local column of a label, or -1 when another piece has it or the row is ignored.
  int64_t of(int32_t label) const {
    const bool here = label >= first && label - first < count;
    WEFT_CHECK(label == kIgnored || (label >= 0 && (here || piece)), "ref.cross_entropy",
               "label {} of {} classes", label, count);
    return here ? label - first : -1;
  }
};

/// log sum exp of logit(0) … logit(V - 1); -infinity of nothing.
template <class Logit>
double log_sum_exp(int64_t V, const Logit& logit) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < V; ++c) largest = std::max(largest, logit(c));
  const double shift = largest == -std::numeric_limits<double>::infinity() ? 0.0 : largest;
  double sum = 0;
  for (int64_t c = 0; c < V; ++c) sum += std::exp(logit(c) - shift);
  return shift + std::log(sum);
}

void cross_entropy(const Call& call) {
  const In logits = call.in(0);
  const int32_t* labels = call.data<int32_t>(1);
  const Out loss_out = call.out(0), lse_out = call.out(1);
  const int64_t V = call.shape(0).back();
  double loss = 0;
  for (int64_t t = 0; t < call.elements(1); ++t) {
    const double lse = log_sum_exp(V, [&](int64_t c) { return logits[t * V + c]; });
    lse_out.set(t, lse);
    if (labels[t] != kIgnored) loss += lse - logits[t * V + checked_label(labels[t], V)];
  }
  loss_out.set(0, loss);
}

void cross_entropy_grad(const Call& call) {
  const In logits = call.in(0), lse = call.in(2);
  const int32_t* labels = call.data<int32_t>(1);
  const double scale = call.in(3)[0];
  const Out dlogits = call.out(0);
  const int64_t V = call.shape(0).back();
  const Columns columns(call.attrs(), V);
  for (int64_t t = 0; t < call.elements(1); ++t) {
    const int64_t label = columns.of(labels[t]);
    for (int64_t c = 0; c < V; ++c) {
      const double softmax = std::exp(logits[t * V + c] - lse[t]);
      const double grad = scale * (softmax - (c == label ? 1.0 : 0.0));
      dlogits.set(t * V + c, labels[t] == kIgnored ? 0.0 : grad);
    }
  }
}

void row_lse(const Call& call) {
  const In logits = call.in(0);
  const Out lse = call.out(0);
  const int64_t V = call.shape(0).back();
  for (int64_t t = 0; t < num_rows(call.shape(0)); ++t) {
    lse.set(t, log_sum_exp(V, [&](int64_t c) { return logits[t * V + c]; }));
  }
}

// The logit of the label where it is among the columns here, else 0.
void pick_logits(const Call& call) {
  const In logits = call.in(0);
  const int32_t* labels = call.data<int32_t>(1);
  const Out picked = call.out(0);
  const int64_t V = call.shape(0).back();
  const Columns columns(call.attrs(), V);
  for (int64_t t = 0; t < call.elements(1); ++t) {
    const int64_t label = columns.of(labels[t]);
    picked.set(t, label < 0 ? 0.0 : logits[t * V + label]);
  }
}

void token_loss(const Call& call) {
  const In lse = call.in(0), picked = call.in(1);
  const int32_t* labels = call.data<int32_t>(2);
  double loss = 0;
  for (int64_t t = 0; t < call.elements(2); ++t) {
    if (labels[t] != kIgnored) loss += lse[t] - picked[t];
  }
  call.out(0).set(0, loss);
}

/// x [.., H] and w as the fused operators hold them.
struct Head {
  In x, w;
  bool transpose_w;
  int64_t H, V;

  explicit Head(const Call& call)
      : x(call.in(0)),
        w(call.in(1)),
        transpose_w(call.attrs().get_bool("transpose_w", true)),
        H(call.shape(0).back()),
        V(transpose_w ? call.shape(1)[0] : call.shape(1)[1]) {}

  int64_t weight_index(int64_t h, int64_t c) const { return transpose_w ? c * H + h : h * V + c; }
  /// Writes the V logits of row t; returns their log sum exp.
  double project(int64_t t, double* logits) const {
    for (int64_t c = 0; c < V; ++c) {
      logits[c] = 0;
      for (int64_t h = 0; h < H; ++h) logits[c] += x[t * H + h] * w[weight_index(h, c)];
    }
    return log_sum_exp(V, [&](int64_t c) { return logits[c]; });
  }
};

int64_t classes(const KernelSpec& spec) {
  return spec.inputs[1].shape[spec.attrs.get_bool("transpose_w", true) ? 0 : 1];
}

// Workspace: the logits of one row.
void linear_cross_entropy(const Call& call) {
  const Head head(call);
  const int32_t* labels = call.data<int32_t>(2);
  double* logits = call.workspace();
  double loss = 0;
  for (int64_t t = 0; t < call.elements(2); ++t) {
    if (labels[t] == kIgnored) continue;
    loss += head.project(t, logits) - logits[checked_label(labels[t], head.V)];
  }
  call.out(0).set(0, loss);
}

// Workspace: the logits of one row, then the sums of dw.
void linear_cross_entropy_train(const Call& call) {
  const Head head(call);
  const int32_t* labels = call.data<int32_t>(2);
  const double scale = call.in(3)[0];
  const In acc = call.in(4);
  const Out dx = call.out(1), dw = call.out(2);
  const int64_t H = head.H, V = head.V;
  double* logits = call.workspace();
  double* dw_sum = logits + V;
  for (int64_t i = 0; i < H * V; ++i) dw_sum[i] = call.has(4) ? acc[i] : 0.0;
  double loss = 0;
  for (int64_t t = 0; t < call.elements(2); ++t) {
    if (labels[t] == kIgnored) {
      for (int64_t h = 0; h < H; ++h) dx.set(t * H + h, 0.0);
      continue;
    }
    const int64_t label = checked_label(labels[t], V);
    const double lse = head.project(t, logits);
    loss += lse - logits[label];
    for (int64_t c = 0; c < V; ++c) {
      logits[c] = scale * (std::exp(logits[c] - lse) - (c == label ? 1.0 : 0.0));
    }
    for (int64_t h = 0; h < H; ++h) {
      double sum = 0;
      for (int64_t c = 0; c < V; ++c) {
        sum += logits[c] * head.w[head.weight_index(h, c)];
        dw_sum[head.weight_index(h, c)] += logits[c] * head.x[t * H + h];
      }
      dx.set(t * H + h, sum);
    }
  }
  for (int64_t i = 0; i < H * V; ++i) dw.set(i, dw_sum[i]);
  call.out(0).set(0, loss);
}

int64_t train_workspace(const KernelSpec& spec) {
  return classes(spec) + num_elements(spec.inputs[1].shape);
}

}  // namespace

RefKernel cross_entropy_kernel() { return {&cross_entropy}; }
RefKernel cross_entropy_grad_kernel() { return {&cross_entropy_grad}; }
RefKernel row_lse_kernel() { return {&row_lse}; }
RefKernel pick_logits_kernel() { return {&pick_logits}; }
RefKernel token_loss_kernel() { return {&token_loss}; }
RefKernel linear_cross_entropy_kernel() { return {&linear_cross_entropy, &classes}; }
RefKernel linear_cross_entropy_train_kernel() {
  return {&linear_cross_entropy_train, &train_workspace};
}

}  // namespace weft::ref
