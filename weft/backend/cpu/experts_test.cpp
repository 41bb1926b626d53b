// Products of rows with the weights of their experts: the same bits for every team, wherever the
// rows lie, and those of one plain product per expert. Values of all operators on rows of experts
// are checked by the conformance suite.
#include "weft/backend/cpu/kernel_test_util.h"
#include "weft/backend/expert_rows.h"

namespace weft::cpu {
namespace {

constexpr int64_t kExperts = 3, kInner = 301, kOuter = 83;

/// The rows of three experts laid out over sequences; row i of an expert is the same everywhere.
struct Layout {
  const char* name;
  int64_t sequences;
  int64_t capacity;             // 0: without
  std::vector<int64_t> counts;  // [sequences, experts]

  TensorType rows(DType dtype, int64_t width) const {
    if (capacity > 0) return {dtype, {kExperts, sequences, capacity, width}};
    int64_t most = 0;
    for (int64_t b = 0; b < sequences; ++b) {
      int64_t sum = 0;
      for (int64_t e = 0; e < kExperts; ++e) sum += counts[static_cast<size_t>(b * kExperts + e)];
      most = std::max(most, sum);
    }
    return {dtype, {sequences, most + 2, width}};
  }
  TensorType count_type() const { return {DType::i32, {sequences, kExperts}}; }
  Operand count_operand() const { return ints(DType::i32, {sequences, kExperts}, counts); }

  /// f(expert, which of its rows, where it lies)
  template <class F>
  void for_rows(const F& f) const {
    const std::vector<int32_t> narrow(counts.begin(), counts.end());
    const ExpertRows where({}, rows(DType::f32, 1), count_type(), narrow.data());
    for (int64_t e = 0; e < kExperts; ++e) {
      int64_t which = 0;
      for (int64_t b = 0; b < sequences; ++b) {
        for (int64_t i = 0; i < where.count(e, b); ++i) f(e, which++, where.begin(e, b) + i);
      }
    }
  }
  Operand row_operand(DType dtype, int64_t width, uint64_t seed) const {
    Operand operand{rows(dtype, width), {}, {}};
    operand.values.assign(static_cast<size_t>(operand.type.elements()), 9.0);  // never read
    for_rows([&](int64_t e, int64_t which, int64_t row) {
      const RngStream random(seed + static_cast<uint64_t>(e));
      for (int64_t j = 0; j < width; ++j) {
        operand.values[static_cast<size_t>(row * width + j)] =
            2.0 * random.uniform(static_cast<uint64_t>(which * width + j)) - 1.0;
      }
    });
    return operand;
  }
};

/// 7 + 405 + 0 rows, uneven over the sequences.
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> list = {
      {"dropless", 4, 0, {2, 150, 0, 0, 3, 0, 4, 1, 0, 1, 251, 0}},
      {"one sequence", 1, 0, {7, 405, 0}},
      {"capacity", 4, 260, {2, 150, 0, 0, 3, 0, 4, 1, 0, 1, 251, 0}},
      {"capacity, other sequences", 2, 300, {0, 105, 0, 7, 300, 0}},
  };
  return list;
}

KernelCase product(const Layout& layout, DType dtype, bool transpose_w) {
  KernelCase test{OpKind::grouped_matmul, {{"transpose_w", transpose_w}}, {}, {}, {}};
  const Shape w = transpose_w ? Shape{kExperts, kOuter, kInner} : Shape{kExperts, kInner, kOuter};
  test.inputs = {layout.row_operand(dtype, kInner, 1), random_operand(dtype, w),
                 layout.count_operand()};
  test.outputs = {layout.rows(dtype, kOuter)};
  return test;
}

KernelCase gradient(const Layout& layout, DType dtype, bool transpose_w) {
  KernelCase test{OpKind::grouped_matmul_wgrad, {{"transpose_w", transpose_w}}, {}, {}, {}};
  const Shape w = transpose_w ? Shape{kExperts, kOuter, kInner} : Shape{kExperts, kInner, kOuter};
  test.inputs = {layout.row_operand(dtype, kInner, 1), layout.row_operand(dtype, kOuter, 11),
                 layout.count_operand(), random_operand(DType::f32, w)};
  test.outputs = {{DType::f32, w}};
  return test;
}

class GroupedMatmul : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  DType dtype_ = std::get<0>(GetParam());
  bool transpose_w_ = std::get<1>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Cpu, GroupedMatmul,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Bool()));

TEST_P(GroupedMatmul, EveryTeamGivesTheValuesOfRef) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    expect_like_ref(product(layout, dtype_, transpose_w_), 1e-5);
    expect_like_ref(gradient(layout, dtype_, transpose_w_), 1e-5);
  }
}

TEST_P(GroupedMatmul, EveryLayoutGivesTheSameBits) {
  const auto backend = make_cpu_backend({.threads = 2});
  const KernelCase first = product(layouts()[0], dtype_, transpose_w_);
  const KernelCase first_grad = gradient(layouts()[0], dtype_, transpose_w_);
  const KernelRun whole(*backend, first), grad(*backend, first_grad);
  std::vector<std::vector<int64_t>> lies(kExperts);  // where row i of expert e lies in the first
  layouts()[0].for_rows(
      [&](int64_t e, int64_t, int64_t row) { lies[static_cast<size_t>(e)].push_back(row); });
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const KernelCase test = product(layout, dtype_, transpose_w_);
    const KernelRun run(*backend, test);
    layout.for_rows([&](int64_t e, int64_t which, int64_t row) {
      const int64_t other = lies[static_cast<size_t>(e)][static_cast<size_t>(which)];
      for (int64_t j = 0; j < kOuter; ++j) {
        ASSERT_EQ(run.value(0, row * kOuter + j), whole.value(0, other * kOuter + j))
            << "expert " << e << " row " << which << " column " << j;
      }
    });
    const KernelCase test_grad = gradient(layout, dtype_, transpose_w_);
    const KernelRun run_grad(*backend, test_grad);
    EXPECT_EQ(0, std::memcmp(run_grad.output(0), grad.output(0),
                             static_cast<size_t>(test_grad.outputs[0].bytes())));
  }
}

// One sequence: the rows of expert 1 are those after the seven of expert 0.
TEST_P(GroupedMatmul, AnExpertIsOnePlainProduct) {
  const Layout& layout = layouts()[1];
  const auto backend = make_cpu_backend({.threads = 2});
  const KernelCase test = product(layout, DType::f32, transpose_w_);
  const KernelRun grouped(*backend, test);
  KernelCase plain{OpKind::matmul, {{"transpose_w", transpose_w_}}, {}, {}, {}};
  const int64_t rows = 405, first = 7, weight = kInner * kOuter;
  const std::vector<double>& values = test.inputs[0].values;
  // The random weights of the grouped case, expert 1.
  std::vector<double> w;
  const RngStream random(1002);
  for (int64_t i = 0; i < weight; ++i) {
    w.push_back(2.0 * random.uniform(static_cast<uint64_t>(weight + i)) - 1.0);
  }
  plain.inputs = {
      floats({rows, kInner},
             {values.begin() + first * kInner, values.begin() + (first + rows) * kInner}),
      floats(transpose_w_ ? Shape{kOuter, kInner} : Shape{kInner, kOuter}, w), absent(), absent()};
  plain.outputs = {{DType::f32, {rows, kOuter}}};
  const KernelRun dense(*backend, plain);
  for (int64_t i = 0; i < rows * kOuter; ++i) {
    ASSERT_EQ(grouped.value(0, first * kOuter + i), dense.value(0, i)) << "element " << i;
  }
}

}  // namespace
}  // namespace weft::cpu
