// router, its gradient and the update of its bias; formulas in docs/moe.md. Logits are one matmul;
// scores, choice and losses of a token are worked out in double, so that only the logits are
// rounded. Sums over tokens go by blocks of fixed size in order: the team size changes nothing.
#include <cmath>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/gemm.h"
#include "weft/backend/cpu/parallel.h"
#include "weft/backend/routing.h"

namespace weft::cpu {
namespace {

constexpr int64_t kBlock = 64;  // tokens of one sequence that a worker takes at a time

/// Attributes and sizes that both directions share.
struct RouterSpec {
  RoutingShape shape;
  int64_t hidden;
  bool sigmoid, normalize;
  double scale, least;  // least: added to the sum of the chosen scores

  explicit RouterSpec(const KernelSpec& spec)
      : shape(spec.attrs, spec.inputs.at(0).shape, spec.inputs.at(1).shape.at(0)),
        hidden(spec.inputs[0].shape.at(2)),
        sigmoid(spec.attrs.get_string("score") == "sigmoid"),
        normalize(spec.attrs.get_bool("normalize", false)),
        scale(spec.attrs.get_double("scale", 1.0)),
        least(sigmoid ? 1e-20 : 0.0) {}

  int64_t tokens() const { return shape.sequences * shape.length; }
  int64_t blocks_of_sequence() const { return (shape.length + kBlock - 1) / kBlock; }
  int64_t blocks() const { return shape.sequences * blocks_of_sequence(); }

  /// f(sequence, first position, end, worker) for block `task`.
  template <class F>
  void over_blocks(int threads, const F& f) const {
    parallel_dealt(threads, blocks(), [&](int64_t task, int64_t worker) {
      const int64_t begin = task % blocks_of_sequence() * kBlock;
      f(task / blocks_of_sequence(), begin, std::min(shape.length, begin + kBlock), worker);
    });
  }
};

/// Scores of one token, and what turns them into shares.
struct Scores {
  double* score;       // [E]
  double log_sum = 0;  // logsumexp of the logits
  double total = 0;    // of the scores; shares are score / total

  Scores(const float* logits, const RouterSpec& spec, double* scratch) : score(scratch) {
    const int64_t E = spec.shape.experts;
    double most = logits[0];
    for (int64_t e = 1; e < E; ++e) most = std::max<double>(most, logits[e]);
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) sum += score[e] = std::exp(logits[e] - most);
    log_sum = most + std::log(sum);
    if (!spec.sigmoid) {
      for (int64_t e = 0; e < E; ++e) score[e] /= sum;
      total = 1;
      return;
    }
    for (int64_t e = 0; e < E; ++e) {
      total += score[e] = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])));
    }
  }
};

/// Scratch memory of one worker: doubles first, then flags.
struct WorkerScratch {
  double *score, *choice, *groups, *grad;
  int64_t* load;
  bool* taken;

  static int64_t bytes(int64_t experts) { return round_up(experts * (5 * 8 + 2), 64); }
  WorkerScratch(void* memory, int64_t worker, int64_t experts) {
    char* own = static_cast<char*>(memory) + worker * bytes(experts);
    score = reinterpret_cast<double*>(own);
    choice = score + experts;
    groups = choice + experts;
    grad = groups + experts;
    load = reinterpret_cast<int64_t*>(grad + experts);
    taken = reinterpret_cast<bool*>(load + experts);
  }
};

class Router final : public CpuKernel {
 public:
  Router(const KernelSpec& spec, int threads) : r_(spec), threads_(std::max(threads, 1)) {
    GemmSpec gemm;
    gemm.m = r_.tokens();
    gemm.n = r_.shape.experts;
    gemm.k = r_.hidden;
    gemm.a = spec.inputs[0].dtype;
    gemm.trans_b = true;
    gemm.lda = gemm.ldb = r_.hidden;
    gemm.ldc = r_.shape.experts;
    gemm_ = make_gemm(gemm, threads);
    sums_bytes_ = round_up(r_.blocks() * (r_.shape.experts + 1) * 8, 64);
  }
  // The matmul is done when the rest begins.
  int64_t workspace_bytes() const override {
    return std::max(gemm_->workspace_bytes(),
                    sums_bytes_ + threads_ * WorkerScratch::bytes(r_.shape.experts));
  }
  void run(const KernelArgs& args) override {
    gemm_->run(in(args, 0), in(args, 1), out(args, 0), nullptr, nullptr, args.workspace);
    auto* sums = static_cast<double*>(args.workspace);
    char* scratch = static_cast<char*>(args.workspace) + sums_bytes_;
    r_.over_blocks(threads_, [&](int64_t b, int64_t begin, int64_t end, int64_t worker) {
      const int64_t block = b * r_.blocks_of_sequence() + begin / kBlock;
      choose(args, b, begin, end, WorkerScratch(scratch, worker, r_.shape.experts),
             sums + block * (r_.shape.experts + 1));
    });
    parallel_dealt(threads_, r_.shape.sequences, [&](int64_t b, int64_t worker) {
      finish(args, b, WorkerScratch(scratch, worker, r_.shape.experts), sums);
    });
  }

 private:
  /// Experts and weights of positions [begin, end); `sums` gets the sums over them of the shares
  /// and of logsumexp squared.
  void choose(const KernelArgs& args, int64_t b, int64_t begin, int64_t end,
              const WorkerScratch& own, double* sums) const {
    const int64_t E = r_.shape.experts, K = r_.shape.top_k;
    const float* bias = in<float>(args, 3);
    std::fill(sums, sums + E + 1, 0.0);
    for (int64_t s = begin; s < end; ++s) {
      const int64_t t = b * r_.shape.length + s;
      const Scores scores(out<float>(args, 0) + t * E, r_, own.score);
      for (int64_t e = 0; e < E; ++e) {
        own.choice[e] = scores.score[e] + (bias == nullptr ? 0.0 : bias[e]);
      }
      int32_t* chosen = out<int32_t>(args, 3) + t * K;
      choose_experts(own.choice, r_.shape, own.taken, own.groups, chosen);
      float* weights = out<float>(args, 1) + t * K;
      if (s >= in<int32_t>(args, 2)[b]) {
        std::fill(weights, weights + K, 0.0f);
        continue;
      }
      double sum = r_.least;
      for (int64_t j = 0; j < K; ++j) sum += scores.score[chosen[j]];
      const double divisor = r_.normalize ? sum : 1.0;
      for (int64_t j = 0; j < K; ++j) {
        weights[j] = static_cast<float>(r_.scale * (scores.score[chosen[j]] / divisor));
      }
      for (int64_t e = 0; e < E; ++e) sums[e] += scores.score[e] / scores.total;
      sums[E] += scores.log_sum * scores.log_sum;
    }
  }

  /// Slots, counts and stats of one sequence.
  void finish(const KernelArgs& args, int64_t b, const WorkerScratch& own, double* sums) const {
    const int64_t E = r_.shape.experts, S = r_.shape.length, K = r_.shape.top_k;
    const int64_t tokens = std::min<int64_t>(in<int32_t>(args, 2)[b], S);
    const int64_t dropped =
        assign_slots(out<int32_t>(args, 3) + b * S * K, r_.shape, tokens,
                     out<int32_t>(args, 2) + b * S * K, out<int32_t>(args, 4) + b * E, own.load);
    double* total = sums + b * r_.blocks_of_sequence() * (E + 1);
    for (int64_t block = 1; block < r_.blocks_of_sequence(); ++block) {
      for (int64_t e = 0; e <= E; ++e) total[e] += total[block * (E + 1) + e];
    }
    float* stats = out<float>(args, 5) + b * (E + 4);
    const auto n = static_cast<double>(tokens);
    double balance = 0;
    for (int64_t e = 0; e < E; ++e) {
      stats[e] = static_cast<float>(own.load[e]);
      if (tokens > 0) balance += static_cast<double>(own.load[e]) / n * (total[e] / n);
    }
    stats[E] = static_cast<float>(dropped);
    stats[E + 1] = static_cast<float>(static_cast<double>(E) * balance);
    stats[E + 2] = static_cast<float>(tokens > 0 ? total[E] / n : 0.0);
    stats[E + 3] = static_cast<float>(tokens);
  }

  RouterSpec r_;
  int threads_;
  std::unique_ptr<Gemm> gemm_;
  int64_t sums_bytes_ = 0;
};

// dlogits by tokens, then dx = dlogits w and dw = acc + dlogits^T x.
class RouterGrad final : public CpuKernel {
 public:
  RouterGrad(const KernelSpec& spec, int threads)
      : r_(spec),
        balance_(spec.attrs.get_double("balance", 0.0)),
        z_loss_(spec.attrs.get_double("z_loss", 0.0)),
        threads_(std::max(threads, 1)) {
    GemmSpec dx, dw;
    dx.m = dw.k = r_.tokens();
    dx.k = dw.m = r_.shape.experts;
    dx.n = dw.n = r_.hidden;
    dx.c = dw.b = spec.inputs[0].dtype;
    dx.lda = dw.lda = r_.shape.experts;
    dx.ldb = dx.ldc = dw.ldb = dw.ldc = r_.hidden;
    dw.trans_a = true;
    dw.addend = has_input(spec, 8);
    dx_ = make_gemm(dx, threads);
    dw_ = make_gemm(dw, threads);
    dlogits_bytes_ = round_up(r_.tokens() * r_.shape.experts * 4, 64);
  }
  int64_t workspace_bytes() const override {
    return dlogits_bytes_ + std::max({threads_ * WorkerScratch::bytes(r_.shape.experts),
                                      dx_->workspace_bytes(), dw_->workspace_bytes()});
  }
  void run(const KernelArgs& args) override {
    auto* dlogits = static_cast<float*>(args.workspace);
    void* scratch = static_cast<char*>(args.workspace) + dlogits_bytes_;
    r_.over_blocks(threads_, [&](int64_t b, int64_t begin, int64_t end, int64_t worker) {
      const WorkerScratch own(scratch, worker, r_.shape.experts);
      const int64_t tokens = std::min<int64_t>(in<int32_t>(args, 2)[b], r_.shape.length);
      for (int64_t s = begin; s < end; ++s) {
        float* to = dlogits + (b * r_.shape.length + s) * r_.shape.experts;
        if (s < tokens) {
          logit_gradient(args, b, s, static_cast<double>(tokens), own, to);
        } else {
          std::fill(to, to + r_.shape.experts, 0.0f);
        }
      }
    });
    dx_->run(dlogits, in(args, 1), out(args, 0), nullptr, nullptr, scratch);
    dw_->run(dlogits, in(args, 0), out(args, 1), nullptr, in(args, 8), scratch);
  }

 private:
  void logit_gradient(const KernelArgs& args, int64_t b, int64_t s, double tokens,
                      const WorkerScratch& own, float* dlogits) const {
    const int64_t E = r_.shape.experts, K = r_.shape.top_k;
    const int64_t t = b * r_.shape.length + s;
    const float* logits = in<float>(args, 4) + t * E;
    const int32_t* chosen = in<int32_t>(args, 5) + t * K;
    const float* loads = in<float>(args, 6) + b * (E + 4);
    const float* dweights = in<float>(args, 7);
    const double aux = in(args, 3) == nullptr ? 0.0 : *in<float>(args, 3);
    const Scores scores(logits, r_, own.score);
    double* grad = own.grad;      // of the scores
    double* shared = own.choice;  // of the shares
    for (int64_t e = 0; e < E; ++e) {
      grad[e] = 0;
      shared[e] = aux * balance_ * static_cast<double>(E) * loads[e] / (tokens * tokens);
    }
    if (dweights != nullptr) weight_gradient(dweights + t * K, chosen, scores.score, grad);
    double mean = 0;
    for (int64_t e = 0; e < E; ++e) {
      mean += (shared[e] + (r_.sigmoid ? 0.0 : grad[e])) * scores.score[e];
    }
    mean /= scores.total;
    for (int64_t e = 0; e < E; ++e) {
      const double score = scores.score[e];
      const double joined =
          r_.sigmoid ? score * (1.0 - score) * (grad[e] + (shared[e] - mean) / scores.total)
                     : score * (grad[e] + shared[e] - mean);
      const double z = aux * z_loss_ * 2.0 * scores.log_sum / tokens;
      dlogits[e] = static_cast<float>(joined + z * std::exp(logits[e] - scores.log_sum));
    }
  }

  /// Adds the gradient of the chosen scores.
  void weight_gradient(const float* dweights, const int32_t* chosen, const double* score,
                       double* grad) const {
    double sum = r_.least, dot = 0;
    for (int64_t j = 0; j < r_.shape.top_k; ++j) sum += score[chosen[j]];
    for (int64_t j = 0; j < r_.shape.top_k; ++j) dot += dweights[j] * score[chosen[j]] / sum;
    for (int64_t j = 0; j < r_.shape.top_k; ++j) {
      grad[chosen[j]] = r_.scale * (r_.normalize ? (dweights[j] - dot) / sum : dweights[j]);
    }
  }

  RouterSpec r_;
  double balance_, z_loss_;
  int threads_;
  std::unique_ptr<Gemm> dx_, dw_;
  int64_t dlogits_bytes_ = 0;
};

// bias[e] moves by rate towards the mean load, unless the step is skipped.
class RouterBiasUpdate final : public CpuKernel {
 public:
  explicit RouterBiasUpdate(const KernelSpec& spec)
      : experts_(spec.inputs.at(0).shape.at(0)), rate_(spec.attrs.get_double("rate")) {}
  void run(const KernelArgs& args) override {
    const float* loads = in<float>(args, 1);
    const double rate = *in<int32_t>(args, 2) != 0 ? rate_ : 0.0;
    double total = 0;
    for (int64_t e = 0; e < experts_; ++e) total += loads[e];
    for (int64_t e = 0; e < experts_; ++e) {
      const double missing = total - static_cast<double>(experts_) * loads[e];
      const double sign = (missing > 0 ? 1.0 : 0.0) - (missing < 0 ? 1.0 : 0.0);
      out<float>(args, 0)[e] = static_cast<float>(in<float>(args, 0)[e] + rate * sign);
    }
  }

 private:
  int64_t experts_;
  double rate_;
};

}  // namespace

KernelPtr make_router(const KernelSpec& spec, int threads) {
  return std::make_unique<Router>(spec, threads);
}
KernelPtr make_router_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<RouterGrad>(spec, threads);
}
KernelPtr make_router_bias_update(const KernelSpec& spec, int) {
  return std::make_unique<RouterBiasUpdate>(spec);
}

}  // namespace weft::cpu
