// Speed of a layer of experts on the cpu kernels:
//   products: rows with uneven experts against one plain product of the same size
//   layer: forward and backward of a whole layer; bench/peers/torch_moe.py does the same
// Usage: bench_experts [threads] [products|layer]
#include <fmt/core.h>
#include <omp.h>

#include <cstdio>
#include <map>
#include <string>

#include "bench/measure.h"

namespace {

using namespace weft;
using namespace weft::bench;

/// Rows of experts [E] dealt to `sequences` of equal length, as uneven as a router deals them.
std::vector<int32_t> deal_rows(std::vector<int64_t> rows_of, int64_t sequences, int64_t rows) {
  std::vector<int32_t> counts(rows_of.size() * static_cast<size_t>(sequences), 0);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t which = i * 1237 % rows;  // 1237 and rows have no common factor
    size_t e = 0;
    for (int64_t end = rows_of[0]; which >= end; end += rows_of[e]) ++e;
    ++counts[static_cast<size_t>(i / (rows / sequences)) * rows_of.size() + e];
  }
  return counts;
}

/// The three products of a layer of experts with 2048 dropless rows of 4 sequences.
void bench_products(Backend& backend) {
  constexpr int64_t kSequences = 4, kRows = 2048;
  const std::vector<int64_t> uneven = {37, 700, 128, 300, 64, 412, 207, 200};
  const std::vector<int64_t> equal(8, kRows / 8);
  struct Case {
    const char* name;
    const std::vector<int64_t>& rows_of;
    int64_t hidden, width;
  };
  const Case cases[] = {{"uneven, 512 x 1024", uneven, 512, 1024},
                        {"equal, 512 x 1024", equal, 512, 1024},
                        {"uneven, 1024 x 512", uneven, 1024, 512},
                        {"uneven, 768 x 2048", uneven, 768, 2048}};
  fmt::print(
      "| 8 experts, 2048 rows | dtype | product | plain GF/s | experts GF/s | of plain |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  for (const Case& c : cases) {
    const auto experts = static_cast<int64_t>(c.rows_of.size());
    const std::vector<int32_t> counts = deal_rows(c.rows_of, kSequences, kRows);
    const TensorType count_type{DType::i32, {kSequences, experts}};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const TensorType x{dtype, {kSequences, kRows / kSequences, c.hidden}};
      const TensorType y{dtype, {kSequences, kRows / kSequences, c.width}};
      const TensorType w{dtype, {experts, c.width, c.hidden}}, plain_w{dtype, {c.width, c.hidden}};
      const TensorType dw{DType::f32, w.shape}, plain_dw{DType::f32, plain_w.shape};
      const Attrs turned{{"transpose_w", true}}, straight{{"transpose_w", false}};
      struct Product {
        const char* name;
        Bound grouped, plain;
        size_t counts;
      };
      Product products[] = {
          {"forward",
           {backend, {OpKind::grouped_matmul, turned, {x, w, count_type}, {y}}},
           {backend, {OpKind::matmul, turned, {x, plain_w, {}, {}}, {y}}},
           2},
          {"dx",
           {backend, {OpKind::grouped_matmul, straight, {y, w, count_type}, {x}}},
           {backend, {OpKind::matmul, straight, {y, plain_w, {}, {}}, {x}}},
           2},
          {"dw",
           {backend, {OpKind::grouped_matmul_wgrad, turned, {x, y, count_type, {}}, {dw}}},
           {backend, {OpKind::matmul_wgrad, turned, {x, y, {}}, {plain_dw}}},
           2},
      };
      for (Product& p : products) {
        std::memcpy(p.grouped.input(p.counts), counts.data(), counts.size() * sizeof(int32_t));
        const auto [t, t_plain] = best_of_both([&] { p.grouped.run(); }, [&] { p.plain.run(); });
        const double work = 2e-9 * kRows * static_cast<double>(c.hidden * c.width);
        fmt::print("| {} | {} | {} | {:.0f} | {:.0f} | {:.0f} % |\n", c.name, dtype_name(dtype),
                   p.name, work / t_plain, work / t, 100 * t_plain / t);
      }
    }
  }
}

/// Kernels in order over named tensors.
class Program {
 public:
  explicit Program(Backend& backend) : backend_(backend) {}

  /// A tensor with small values, or zeros of integers.
  void tensor(const std::string& name, const TensorType& type, float scale = 0.01f) {
    memory_.emplace_back(backend_, std::max<int64_t>(type.bytes(), 64));
    tensors_[name] = {type, memory_.back().data()};
    uint32_t state = 12345;
    for (int64_t i = 0; is_floating(type.dtype) && i < type.elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      const double value = scale * (static_cast<double>(state >> 8) / (1 << 23) - 1.0);
      store_element(tensors_[name].data, type.dtype, i, value);
    }
  }
  void* data(const std::string& name) { return tensors_.at(name).data; }

  /// Adds a kernel; an operand "" is absent. Outputs that are no tensors yet become some.
  void add(OpKind op, const Attrs& attrs, const std::vector<std::string>& inputs,
           const std::vector<std::pair<std::string, TensorType>>& outputs) {
    Step step;
    KernelSpec spec{op, attrs, {}, {}};
    for (const std::string& name : inputs) {
      spec.inputs.push_back(name.empty() ? TensorType{} : tensors_.at(name).type);
      step.in.push_back(name.empty() ? nullptr : tensors_.at(name).data);
    }
    for (const auto& [name, type] : outputs) {
      if (!tensors_.contains(name)) tensor(name, type);
      spec.outputs.push_back(type);
      step.out.push_back(tensors_.at(name).data);
    }
    step.kernel = backend_.prepare(spec);
    workspace_ = std::max(workspace_, backend_.workspace_bytes(spec));
    steps_.push_back(std::move(step));
  }
  void run() {
    if (scratch_ == nullptr) scratch_ = std::make_unique<Memory>(backend_, workspace_ + 64);
    for (const Step& step : steps_) step.kernel->run({step.in, step.out, scratch_->data()});
  }

 private:
  struct Tensor {
    TensorType type;
    void* data = nullptr;
  };
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  Backend& backend_;
  std::map<std::string, Tensor> tensors_;
  std::vector<Memory> memory_;
  std::vector<Step> steps_;
  int64_t workspace_ = 0;
  std::unique_ptr<Memory> scratch_;
};

/// Forward and backward of y = x + experts(x): 4 sequences of 256, top 2 of 8, silu, dropless.
void bench_layer(Backend& backend, DType dtype) {
  constexpr int64_t B = 4, S = 256, H = 512, E = 8, K = 2, I = 1024;
  const TensorType x{dtype, {B, S, H}}, rows{dtype, {B, S * K, H}}, inner{dtype, {B, S * K, I}};
  const TensorType chosen{DType::i32, {B, S, K}}, weights{DType::f32, {B, S, K}};
  const TensorType logits{DType::f32, {B, S, E}}, counts{DType::i32, {B, E}};
  const TensorType stats{DType::f32, {B, E + 4}}, router{DType::f32, {E, H}};
  const TensorType up{DType::f32, {E, I, H}}, down{DType::f32, {E, H, I}};
  const Attrs routing{{"top_k", K}, {"score", std::string("softmax")}, {"normalize", true}};
  const Attrs turned{{"transpose_w", true}}, straight{{"transpose_w", false}};
  const Attrs silu{{"kind", std::string("silu")}};
  Program p(backend);
  p.tensor("x", x, 1.0f);
  p.tensor("dy", x, 0.01f);
  p.tensor("router.w", router, 0.1f);
  p.tensor("gate.w", {dtype, up.shape}, 0.05f);
  p.tensor("up.w", {dtype, up.shape}, 0.05f);
  p.tensor("down.w", {dtype, down.shape}, 0.05f);
  p.tensor("lengths", {DType::i32, {B}});
  for (int64_t b = 0; b < B; ++b) static_cast<int32_t*>(p.data("lengths"))[b] = S;

  p.add(OpKind::router, routing, {"x", "router.w", "lengths", "", ""},
        {{"logits", logits},
         {"weights", weights},
         {"slots", chosen},
         {"experts", chosen},
         {"counts", counts},
         {"stats", stats}});
  p.add(OpKind::dispatch, {}, {"x", "slots", "counts", ""}, {{"rows", rows}});
  p.add(OpKind::grouped_matmul, turned, {"rows", "gate.w", "counts"}, {{"gate", inner}});
  p.add(OpKind::grouped_matmul, turned, {"rows", "up.w", "counts"}, {{"up", inner}});
  p.add(OpKind::expert_glu, silu, {"gate", "up", "counts"}, {{"inner", inner}});
  p.add(OpKind::grouped_matmul, turned, {"inner", "down.w", "counts"}, {{"down", rows}});
  p.add(OpKind::combine, {}, {"down", "slots", "counts", "weights", "x"}, {{"y", x}});

  p.add(OpKind::combine_weight_grad, {}, {"down", "dy", "slots", "counts"},
        {{"dweights", weights}});
  p.add(OpKind::dispatch, {}, {"dy", "slots", "counts", "weights"}, {{"ddown", rows}});
  p.add(OpKind::grouped_matmul_wgrad, turned, {"inner", "ddown", "counts", ""},
        {{"down.dw", down}});
  p.add(OpKind::grouped_matmul, straight, {"ddown", "down.w", "counts"}, {{"dinner", inner}});
  p.add(OpKind::expert_glu_grad, silu, {"gate", "up", "dinner", "counts"},
        {{"dgate", inner}, {"dup", inner}});
  p.add(OpKind::grouped_matmul_wgrad, turned, {"rows", "dgate", "counts", ""}, {{"gate.dw", up}});
  p.add(OpKind::grouped_matmul_wgrad, turned, {"rows", "dup", "counts", ""}, {{"up.dw", up}});
  p.add(OpKind::grouped_matmul, straight, {"dgate", "gate.w", "counts"}, {{"drows", rows}});
  p.add(OpKind::grouped_matmul, straight, {"dup", "up.w", "counts"}, {{"drows2", rows}});
  p.add(OpKind::add, {}, {"drows", "drows2"}, {{"drows", rows}});
  p.add(OpKind::combine, {}, {"drows", "slots", "counts", "", "dy"}, {{"dx", x}});
  p.add(OpKind::router_grad, routing,
        {"x", "router.w", "lengths", "", "logits", "experts", "stats", "dweights", ""},
        {{"dx.router", x}, {"router.dw", router}});
  p.add(OpKind::add, {}, {"dx", "dx.router"}, {{"dx", x}});

  const double t = best_seconds([&] { p.run(); }, 20);
  const double flops = 3 * 3 * 2.0 * B * S * K * H * I;
  fmt::print(
      "{{\"what\": \"weft moe layer\", \"dtype\": \"{}\", \"ms\": {:.2f}, "
      "\"tokens_per_s\": {:.0f}, \"gflops\": {:.1f}}}\n",
      dtype == DType::f32 ? "fp32" : "bf16", 1e3 * t, B * S / t, flops / t / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);
  const int threads = argc > 1 ? std::stoi(argv[1]) : omp_get_max_threads();
  time_processor = threads == 1;
  const std::string what = argc > 2 ? argv[2] : "";
  const auto backend = make_backend("cpu", {.threads = threads});
  if (what.empty() || what == "products") bench_products(*backend);
  if (what.empty() || what == "layer") {
    bench_layer(*backend, DType::f32);
    bench_layer(*backend, DType::bf16);
  }
  return 0;
}
