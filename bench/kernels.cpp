// Speed of the cpu kernels, as ratios measured in one run:
//   matmuls of gpt2-124M: weft against bare oneDNN and against a loop of FMA instructions
//   attention and its gradient against the same loop
//   adamw and other memory-bound kernels against STREAM triad
//   step: all matmuls of a gpt2-124M training step, bare oneDNN against weft, summed
// Usage: bench_kernels [threads] [matmul|attention|memory|step|step-f32]
#include <fmt/core.h>
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "weft/backend/cpu/gemm.h"

namespace {

using namespace weft;
using namespace weft::bench;

__attribute__((target("avx2,fma"))) float fma_loop(int64_t count) {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  float result = 0;
  for (const __m256& sum : sums) result += _mm256_cvtss_f32(sum);
  return result;
}

/// GF/s of 256-bit FMA instructions on registers.
double peak_gflops(int threads) {
  constexpr int64_t kCount = 4'000'000;
  float sink = 0;
  const double t = best_seconds([&] {
#pragma omp parallel num_threads(threads) reduction(+ : sink)
    sink += fma_loop(kCount);
  });
  if (sink == 12345.0f) fmt::print("\n");
  return static_cast<double>(threads) * kCount * 12 * 16 / t / 1e9;
}

void bench_matmul(Backend& backend, int threads, double peak) {
  struct Case {
    const char* name;
    int64_t m, n, k;
    bool trans_a, trans_b;
  };
  const Case cases[] = {
      {"qkv forward", 4096, 2304, 768, false, false},
      {"attention output", 4096, 768, 768, false, false},
      {"mlp up", 4096, 3072, 768, false, false},
      {"mlp down", 4096, 768, 3072, false, false},
      {"mlp down, dx", 4096, 3072, 768, false, true},
      {"mlp up, dw", 768, 3072, 4096, true, false},
      {"logits, 512 rows", 512, 50257, 768, false, true},
      {"logits dw, 512 rows", 50257, 768, 512, true, false},
      {"nanogpt mlp up", 768, 512, 128, false, true},
      {"nanogpt mlp down", 768, 128, 512, false, true},
  };
  fmt::print(
      "| matmul | m x n x k | oneDNN f32 GF/s | f32 GF/s | of peak | f32 / oneDNN "
      "| bf16 GF/s | of peak |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Case& c : cases) {
    cpu::GemmSpec spec;
    spec.m = c.m, spec.n = c.n, spec.k = c.k;
    spec.trans_a = c.trans_a, spec.trans_b = c.trans_b;
    spec.lda = c.trans_a ? c.m : c.k;
    spec.ldb = c.trans_b ? c.k : c.n;
    spec.ldc = c.n;
    cpu::GemmSpec half = spec;
    half.a = half.b = DType::bf16;
    half.c = c.trans_a ? DType::f32 : DType::bf16;
    const auto own = cpu::make_gemm(spec, threads);
    const auto own_half = cpu::make_gemm(half, threads);
    const auto peer = cpu::make_gemm(spec, threads, cpu::GemmKind::onednn);
    const Memory a(backend, c.m * c.k * 4), b(backend, c.k * c.n * 4), out(backend, c.m * c.n * 4);
    const Memory workspace(backend, std::max({own->workspace_bytes(), own_half->workspace_bytes(),
                                              peer->workspace_bytes()}));
    const auto run = [&](const cpu::Gemm& gemm) {
      return [&] { gemm.run(a.data(), b.data(), out.data(), nullptr, nullptr, workspace.data()); };
    };
    const auto [t_own, t_peer] = best_of_both(run(*own), run(*peer));
    const double t_half = best_seconds(run(*own_half));
    const double work = 2e-9 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k);
    fmt::print("| {} | {} x {} x {} | {:.0f} | {:.0f} | {:.0f} % | {:.2f} | {:.0f} | {:.0f} % |\n",
               c.name, c.m, c.n, c.k, work / t_peer, work / t_own, 100 * work / t_own / peak,
               t_peer / t_own, work / t_half, 100 * work / t_half / peak);
  }
}

/// All matmuls of one training step of gpt2-124M: sequence 1024, micro-batch 4. The rate that bare
/// oneDNN matmuls reach over the whole list is the yardstick for the step itself.
void bench_step(Backend& backend, int threads, DType dtype) {
  constexpr int64_t kRows = 4096, kHidden = 768, kInner = 3072, kClasses = 50257, kChunk = 448;
  struct Case {
    const char* name;
    double count;  // of this shape in a step
    int64_t m, n, k;
    bool trans_a, trans_b, wide;  // wide: f32 result
  };
  constexpr double kLayers = 12, kChunks = static_cast<double>(kRows) / kChunk;
  const Case cases[] = {
      {"attention projections", 4 * kLayers, kRows, kHidden, kHidden, false, false, false},
      {"attention projections, dx", 4 * kLayers, kRows, kHidden, kHidden, false, true, false},
      {"attention projections, dw", 4 * kLayers, kHidden, kHidden, kRows, true, false, true},
      {"mlp up", kLayers, kRows, kInner, kHidden, false, false, false},
      {"mlp up, dx", kLayers, kRows, kHidden, kInner, false, true, false},
      {"mlp up, dw", kLayers, kHidden, kInner, kRows, true, false, true},
      {"mlp down", kLayers, kRows, kHidden, kInner, false, false, false},
      {"mlp down, dx", kLayers, kRows, kInner, kHidden, false, true, false},
      {"mlp down, dw", kLayers, kInner, kHidden, kRows, true, false, true},
      {"logits, 448 rows", kChunks, kChunk, kClasses, kHidden, false, true, true},
      {"logits dx, 448 rows", kChunks, kChunk, kHidden, kClasses, false, false, false},
      {"logits dw, 448 rows", kChunks, kClasses, kHidden, kChunk, true, false, true},
  };
  fmt::print(
      "\n| {} matmuls of a step | count | oneDNN ms | weft ms | oneDNN GF/s | weft GF/s |\n"
      "| --- | --- | --- | --- | --- | --- |\n",
      dtype_name(dtype));
  double work = 0, bare = 0, own = 0;
  for (const Case& c : cases) {
    cpu::GemmSpec spec;
    spec.m = c.m, spec.n = c.n, spec.k = c.k;
    spec.trans_a = c.trans_a, spec.trans_b = c.trans_b;
    spec.lda = c.trans_a ? c.m : c.k;
    spec.ldb = c.trans_b ? c.k : c.n;
    spec.ldc = (c.n + 31) / 32 * 32;  // as the fused loss keeps its logits
    spec.a = spec.b = dtype;
    spec.c = c.wide ? DType::f32 : dtype;
    const auto ours = cpu::make_gemm(spec, threads);
    const auto peer = cpu::make_gemm(spec, threads, cpu::GemmKind::onednn);
    const Memory a(backend, c.m * c.k * 4), b(backend, c.k * c.n * 4),
        out(backend, c.m * spec.ldc * 4);
    const Memory workspace(backend, std::max(ours->workspace_bytes(), peer->workspace_bytes()));
    const auto run = [&](const cpu::Gemm& gemm) {
      return [&] { gemm.run(a.data(), b.data(), out.data(), nullptr, nullptr, workspace.data()); };
    };
    const auto [t_ours, t_peer] = best_of_both(run(*ours), run(*peer));
    const double flops = 2e-9 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k);
    fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.0f} | {:.0f} |\n", c.name, c.count,
               1e3 * t_peer * c.count, 1e3 * t_ours * c.count, flops / t_peer, flops / t_ours);
    work += flops * c.count, bare += t_peer * c.count, own += t_ours * c.count;
  }
  fmt::print("| all | | {:.0f} | {:.0f} | {:.0f} | {:.0f} |\n", 1e3 * bare, 1e3 * own, work / bare,
             work / own);
}

void bench_attention(Backend& backend, double peak) {
  struct Case {
    const char* name;
    int64_t sequences, positions, heads, kv_heads, head_dim;
  };
  const Case cases[] = {{"gpt2-124M, 4 x 1024", 4, 1024, 12, 12, 64},
                        {"grouped heads, 1 x 2048", 1, 2048, 16, 4, 128},
                        {"nanogpt, 12 x 64", 12, 64, 4, 4, 32}};
  fmt::print(
      "\n| attention | dtype | forward GF/s | of peak | backward GF/s | of peak |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  for (const Case& c : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Attrs attrs{{"head_dim", c.head_dim},
                        {"num_heads", c.heads},
                        {"num_kv_heads", c.kv_heads},
                        {"scale", 0.125},
                        {"window", int64_t{0}}};
      const TensorType q{dtype, {c.sequences, c.positions, c.heads * c.head_dim}};
      const TensorType kv{dtype, {c.sequences, c.positions, c.kv_heads * c.head_dim}};
      const TensorType lse{DType::f32, {c.sequences, c.heads, c.positions}};
      Bound forward(backend, {OpKind::attention, attrs, {q, kv, kv, {}}, {q, lse}});
      Bound backward(backend,
                     {OpKind::attention_grad, attrs, {q, kv, kv, {}, q, lse, q}, {q, kv, kv}});
      // Causal half of two (forward) and five (backward) products.
      const double pairs = 0.5 * static_cast<double>(c.sequences * c.heads * c.positions) *
                           static_cast<double>(c.positions + 1);
      const double product = 2e-9 * pairs * static_cast<double>(c.head_dim);
      const double f = 2 * product / best_seconds([&] { forward.run(); });
      const double b = 5 * product / best_seconds([&] { backward.run(); });
      fmt::print("| {} | {} | {:.0f} | {:.0f} % | {:.0f} | {:.0f} % |\n", c.name, dtype_name(dtype),
                 f, 100 * f / peak, b, 100 * b / peak);
    }
  }
}

void bench_memory(Backend& backend, int threads) {
  constexpr int64_t kCount = 24 << 20;
  const Memory a(backend, kCount * 4), b(backend, kCount * 4), c(backend, kCount * 4);
  const auto triad = [&] {
    auto* to = static_cast<float*>(a.data());
    const auto* x = static_cast<const float*>(b.data());
    const auto* y = static_cast<const float*>(c.data());
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < kCount; ++i) to[i] = x[i] + 3.0f * y[i];
  };
  const TensorType x{DType::f32, {kCount}}, one{DType::f32, {1}}, half{DType::bf16, {kCount}};
  const TensorType rows{DType::f32, {kCount / 768, 768}}, row{DType::f32, {768}};
  const TensorType stat{DType::f32, {kCount / 768}};
  const auto adamw = [&](const char* copy) {
    return Attrs{{"beta1", 0.9},
                 {"beta2", 0.95},
                 {"eps", 1e-8},
                 {"weight_decay", 0.1},
                 {"copy_dtype", std::string(copy)}};
  };
  struct Case {
    const char* name;
    double bytes;  // per element, read and written
    Bound kernel;
  };
  const std::vector<TensorType> update = {x, x, x, x, {DType::f32, {3}}, one, {DType::i32, {1}}};
  std::vector<Case> cases;
  const auto add = [&](const char* name, double bytes, KernelSpec spec,
                       std::vector<std::pair<size_t, size_t>> in_place = {}) {
    cases.push_back({name, bytes, Bound(backend, std::move(spec), std::move(in_place))});
  };
  const std::vector<std::pair<size_t, size_t>> same = {{0, 0}, {1, 1}, {2, 2}};
  add("adamw", 28, {OpKind::adamw, adamw("none"), update, {x, x, x}}, same);
  add("adamw with bf16 copy", 30, {OpKind::adamw, adamw("bf16"), update, {x, x, x, half}}, same);
  Attrs rounded = adamw("bf16");
  rounded.set("seed", int64_t{1});
  rounded.set("site", int64_t{2});
  rounded.set("elements", fmt::format("{};0;{};0", kCount, kCount));
  std::vector<TensorType> with_step = update;
  with_step[1] = with_step[2] = half;
  with_step.push_back({DType::i64, {1}});
  add("adamw, bf16 moments and copy", 22,
      {OpKind::adamw, rounded, with_step, {x, half, half, half}}, same);
  for (Case& test : cases) {  // every operand away from denormals, and apply = 1
    const float hyper[3] = {3e-4f, 0.1f, 0.05f};
    std::memcpy(test.kernel.input(4), hyper, sizeof(hyper));
    *static_cast<int32_t*>(test.kernel.input(6)) = 1;
    if (&test == &cases.back()) {
      auto* v = static_cast<BF16*>(test.kernel.input(2));
      for (int64_t i = 0; i < kCount; ++i) v[i] = to_bf16(1e-3f);
      continue;
    }
    auto* v = static_cast<float*>(test.kernel.input(2));
    for (int64_t i = 0; i < kCount; ++i) v[i] = 1e-3f;
  }
  add("sum_squares", 4, {OpKind::sum_squares, {}, {x}, {{DType::f64, {1}}}});
  add("add", 12, {OpKind::add, {}, {x, x}, {x}}, {{0, 0}});
  // Not in place: run after run, the values would shrink to denormals.
  add("gelu_tanh", 8, {OpKind::activation, {{"kind", std::string("gelu_tanh")}}, {x}, {x}});
  add("rmsnorm", 8, {OpKind::rmsnorm, {{"eps", 1e-5}}, {rows, row}, {rows, stat}});
  fmt::print("\n| memory-bound | GB/s | of STREAM triad |\n| --- | --- | --- |\n");
  for (Case& test : cases) {
    const auto [t, t_triad] = best_of_both([&] { test.kernel.run(); }, triad);
    const double rate = test.bytes * kCount / t / 1e9, stream = 12.0 * kCount / t_triad / 1e9;
    fmt::print("| {} | {:.1f} | {:.0f} % of {:.1f} |\n", test.name, rate, 100 * rate / stream,
               stream);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_max_threads();
  if (threads < 1 || argc > 3) {
    fmt::print(stderr, "usage: bench_kernels [threads] [matmul|attention|memory|step|step-f32]\n");
    return 2;
  }
  time_processor = threads == 1;
  const std::string what = argc > 2 ? argv[2] : "";
  const auto backend = make_backend("cpu", {.threads = threads});
  const double peak = peak_gflops(threads);
  fmt::print("{} threads, FMA loop (256-bit) {:.0f} GF/s\n\n", threads, peak);
  if (what.empty() || what == "matmul") bench_matmul(*backend, threads, peak);
  if (what.empty() || what == "attention") bench_attention(*backend, peak);
  if (what.empty() || what == "memory") bench_memory(*backend, threads);
  if (what.empty() || what == "step") bench_step(*backend, threads, DType::bf16);
  if (what.empty() || what == "step-f32") bench_step(*backend, threads, DType::f32);
  return 0;
}
