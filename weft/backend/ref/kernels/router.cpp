// router and its gradient; formulas in docs/moe.md.
#include <cmath>
#include <memory>
#include <vector>

#include "weft/backend/ref/ref_kernel.h"
#include "weft/backend/routing.h"

namespace weft::ref {
namespace {

/// Scores of one token. Softmax: probabilities; sigmoid: scores, and their shares for the balance.
struct Scores {
  std::vector<double> score, share;
  double log_sum = 0;  // logsumexp of the logits
};

Scores score_token(const In& logits, int64_t at, int64_t E, bool sigmoid) {
  Scores s;
  double most = logits[at];
  for (int64_t e = 1; e < E; ++e) most = std::max(most, logits[at + e]);
  double sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += std::exp(logits[at + e] - most);
  s.log_sum = most + std::log(sum);
  double total = 0;
  for (int64_t e = 0; e < E; ++e) {
    const double x = logits[at + e];
    s.score.push_back(sigmoid ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x - s.log_sum));
    total += s.score.back();
  }
  for (int64_t e = 0; e < E; ++e) s.share.push_back(sigmoid ? s.score[e] / total : s.score[e]);
  return s;
}

/// Below the sum of sigmoid scores, as published with DeepSeek-V3.
double tiny(bool sigmoid) { return sigmoid ? 1e-20 : 0.0; }

// logits = x w^T; experts by score + bias; weights by score; slots, counts and stats by sequence.
void router(const Call& call) {
  const RoutingShape shape(call.attrs(), call.shape(0), call.shape(1)[0]);
  const int64_t S = shape.length, E = shape.experts, K = shape.top_k, H = call.shape(0)[2];
  const bool sigmoid = call.attrs().get_string("score") == "sigmoid";
  const bool normalize = call.attrs().get_bool("normalize", false);
  const double scale = call.attrs().get_double("scale", 1.0);
  const In x = call.in(0), w = call.in(1), bias = call.in(3);
  const int32_t* lengths = call.data<int32_t>(2);
  const Out logits_out = call.out(0), weights = call.out(1), stats = call.out(5);
  auto* slots = call.out_data<int32_t>(2);
  auto* experts = call.out_data<int32_t>(3);
  auto* counts = call.out_data<int32_t>(4);
  const In logits(call.out_data<void>(0), call.out_type(0).dtype);
  std::vector<double> choice(static_cast<size_t>(E)), groups(static_cast<size_t>(E));
  const auto taken = std::make_unique<bool[]>(static_cast<size_t>(2 * E));
  std::vector<int64_t> load(static_cast<size_t>(E));
  for (int64_t b = 0; b < shape.sequences; ++b) {
    const int64_t tokens = std::min<int64_t>(lengths[b], S);
    std::vector<double> share(static_cast<size_t>(E), 0.0);
    double z = 0;
    for (int64_t s = 0; s < S; ++s) {
      const int64_t t = b * S + s;
      for (int64_t e = 0; e < E; ++e) {
        double sum = 0;
        for (int64_t h = 0; h < H; ++h) sum += x[t * H + h] * w[e * H + h];
        logits_out.set(t * E + e, sum);
      }
      const Scores scores = score_token(logits, t * E, E, sigmoid);
      for (int64_t e = 0; e < E; ++e) {
        choice[static_cast<size_t>(e)] =
            scores.score[static_cast<size_t>(e)] + (call.has(3) ? bias[e] : 0.0);
      }
      int32_t* chosen = experts + t * K;
      choose_experts(choice.data(), shape, taken.get(), groups.data(), chosen);
      double sum = tiny(sigmoid);
      for (int64_t j = 0; j < K; ++j) sum += scores.score[static_cast<size_t>(chosen[j])];
      for (int64_t j = 0; j < K; ++j) {
        const double score = scores.score[static_cast<size_t>(chosen[j])];
        weights.set(t * K + j, s < tokens ? scale * (normalize ? score / sum : score) : 0.0);
      }
      if (s >= tokens) continue;
      z += scores.log_sum * scores.log_sum;
      for (size_t e = 0; e < share.size(); ++e) share[e] += scores.share[e];
    }
    const int64_t dropped = assign_slots(experts + b * S * K, shape, tokens, slots + b * S * K,
                                         counts + b * E, load.data());
    const auto n = static_cast<double>(tokens);
    double balance = 0;
    for (int64_t e = 0; e < E; ++e) {
      const auto assigned = static_cast<double>(load[static_cast<size_t>(e)]);
      stats.set(b * (E + 4) + e, assigned);
      if (tokens > 0) balance += assigned / n * (share[static_cast<size_t>(e)] / n);
    }
    stats.set(b * (E + 4) + E, static_cast<double>(dropped));
    stats.set(b * (E + 4) + E + 1, static_cast<double>(E) * balance);
    stats.set(b * (E + 4) + E + 2, tokens > 0 ? z / n : 0.0);
    stats.set(b * (E + 4) + E + 3, n);
  }
}

/// d/dlogits of sum_e grad_e score_e for one token; `share_grad` belongs to the shares.
std::vector<double> logit_gradient(const Scores& s, const std::vector<double>& score_grad,
                                   const std::vector<double>& share_grad, bool sigmoid) {
  const size_t E = s.score.size();
  std::vector<double> grad(E);
  if (!sigmoid) {
    double mean = 0;
    for (size_t e = 0; e < E; ++e) mean += (score_grad[e] + share_grad[e]) * s.score[e];
    for (size_t e = 0; e < E; ++e) {
      grad[e] = s.score[e] * (score_grad[e] + share_grad[e] - mean);
    }
    return grad;
  }
  double mean = 0, total = 0;
  for (size_t e = 0; e < E; ++e) {
    mean += share_grad[e] * s.share[e];
    total += s.score[e];
  }
  for (size_t e = 0; e < E; ++e) {
    const double slope = s.score[e] * (1.0 - s.score[e]);
    grad[e] = slope * (score_grad[e] + (share_grad[e] - mean) / total);
  }
  return grad;
}

// dw = acc + dlogits^T x; dx = dlogits w. dlogits joins the chosen weights, aux_scale x balance x
// d(balance loss) and aux_scale x z_loss x d(z loss).
void router_grad(const Call& call) {
  const RoutingShape shape(call.attrs(), call.shape(0), call.shape(1)[0]);
  const int64_t S = shape.length, E = shape.experts, K = shape.top_k, H = call.shape(0)[2];
  const bool sigmoid = call.attrs().get_string("score") == "sigmoid";
  const bool normalize = call.attrs().get_bool("normalize", false);
  const double scale = call.attrs().get_double("scale", 1.0);
  const In x = call.in(0), w = call.in(1), logits = call.in(4), stats = call.in(6),
           dweights = call.in(7), acc = call.in(8);
  const int32_t* lengths = call.data<int32_t>(2);
  const int32_t* experts = call.data<int32_t>(5);
  const double aux = call.has(3) ? call.in(3)[0] : 0.0;
  const double balance = aux * call.attrs().get_double("balance", 0.0);
  const double z_loss = aux * call.attrs().get_double("z_loss", 0.0);
  const Out dx = call.out(0), dw = call.out(1);
  std::vector<double> sums(static_cast<size_t>(E * H), 0.0);
  for (int64_t t = 0; t < shape.sequences * S; ++t) {
    const int64_t b = t / S;
    const int64_t tokens = std::min<int64_t>(lengths[b], S);
    std::vector<double> dlogits(static_cast<size_t>(E), 0.0);
    if (t % S < tokens) {
      const Scores s = score_token(logits, t * E, E, sigmoid);
      std::vector<double> score_grad(static_cast<size_t>(E), 0.0), share_grad = score_grad;
      double sum = tiny(sigmoid), dot = 0;
      for (int64_t j = 0; j < K; ++j) sum += s.score[static_cast<size_t>(experts[t * K + j])];
      for (int64_t j = 0; j < K && call.has(7); ++j) {
        dot += dweights[t * K + j] * s.score[static_cast<size_t>(experts[t * K + j])] / sum;
      }
      for (int64_t j = 0; j < K && call.has(7); ++j) {
        const double g = dweights[t * K + j];
        score_grad[static_cast<size_t>(experts[t * K + j])] =
            scale * (normalize ? (g - dot) / sum : g);
      }
      const auto n = static_cast<double>(tokens);
      for (int64_t e = 0; e < E; ++e) {
        share_grad[static_cast<size_t>(e)] =
            balance * static_cast<double>(E) * stats[b * (E + 4) + e] / (n * n);
      }
      dlogits = logit_gradient(s, score_grad, share_grad, sigmoid);
      for (int64_t e = 0; e < E; ++e) {
        dlogits[static_cast<size_t>(e)] +=
            z_loss * 2.0 * s.log_sum * std::exp(logits[t * E + e] - s.log_sum) / n;
      }
    }
    for (int64_t h = 0; h < H; ++h) {
      double sum = 0;
      for (int64_t e = 0; e < E; ++e) {
        sum += dlogits[static_cast<size_t>(e)] * w[e * H + h];
        sums[static_cast<size_t>(e * H + h)] += dlogits[static_cast<size_t>(e)] * x[t * H + h];
      }
      dx.set(t * H + h, sum);
    }
  }
  for (int64_t i = 0; i < E * H; ++i) {
    dw.set(i, (call.has(8) ? acc[i] : 0.0) + sums[static_cast<size_t>(i)]);
  }
}

// bias[e] moves by rate towards the mean load: up below it, down above, unless the step is skipped.
void router_bias_update(const Call& call) {
  const In bias = call.in(0), stats = call.in(1);
  const Out out = call.out(0);
  const int64_t E = call.elements(0);
  const double rate = call.data<int32_t>(2)[0] != 0 ? call.attrs().get_double("rate") : 0.0;
  double total = 0;
  for (int64_t e = 0; e < E; ++e) total += stats[e];
  for (int64_t e = 0; e < E; ++e) {
    const double missing = total - static_cast<double>(E) * stats[e];
    out.set(e, bias[e] + rate * static_cast<double>((missing > 0) - (missing < 0)));
  }
}

}  // namespace

RefKernel router_kernel() { return {&router}; }
RefKernel router_grad_kernel() { return {&router_grad}; }

RefKernel router_bias_update_kernel() { return {&router_bias_update}; }

}  // namespace weft::ref
