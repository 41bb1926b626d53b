// Optimizer updates: equal to ref to the bit, with and without a copy, applied or not.
#include "weft/backend/cpu/kernel_test_util.h"
#include "weft/backend/cpu/update_isa.h"

namespace weft::cpu {
namespace {

void expect_same_bits(const KernelCase& test) {
  const auto ref = make_ref_backend({});
  for (const int threads : {1, 3}) {
    const auto cpu = make_cpu_backend({.threads = threads});
    const KernelRun want(*ref, test), got(*cpu, test);
    for (size_t i = 0; i < test.outputs.size(); ++i) {
      EXPECT_EQ(0, std::memcmp(want.output(i), got.output(i),
                               static_cast<size_t>(test.outputs[i].bytes())))
          << "output " << i;
    }
  }
}

std::vector<double> positive(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(1e-6 * static_cast<double>(i % 977));
  return values;
}

TEST(CpuUpdate, AdamwHasTheBitsOfRef) {
  for (const int64_t count : {1, 7, 1023, 50021}) {
    for (const char* copy : {"none", "bf16", "f16", "f32"}) {
      for (const int64_t apply : {0, 1}) {
        const Attrs attrs{{"beta1", 0.9},
                          {"beta2", 0.95},
                          {"eps", 1e-8},
                          {"weight_decay", 0.1},
                          {"copy_dtype", std::string(copy)}};
        const Shape shape{count};
        const Operand any = random_operand(DType::f32, shape);
        KernelCase test{OpKind::adamw, attrs, {}, {any.type, any.type, any.type}, {}};
        test.inputs = {any,
                       any,
                       floats(shape, positive(count)),
                       any,
                       floats({3}, {3e-4, 0.1, 0.05}),
                       floats({1}, {0.7}),
                       ints(DType::i32, {1}, {apply})};
        if (copy != std::string("none")) test.outputs.push_back({*parse_dtype(copy), shape});
        expect_same_bits(test);
        test.in_place = {{0, 0}, {1, 1}, {2, 2}};
        expect_same_bits(test);
      }
    }
  }
}

TEST(CpuUpdate, SgdHasTheBitsOfRef) {
  for (const int64_t count : {7, 50021}) {
    for (const bool momentum : {false, true}) {
      for (const int64_t apply : {0, 1}) {
        const Attrs attrs{{"momentum", momentum ? 0.9 : 0.0},
                          {"weight_decay", 0.1},
                          {"copy_dtype", std::string("bf16")}};
        const Shape shape{count};
        const Operand any = random_operand(DType::f32, shape);
        const TensorType none{};
        KernelCase test{OpKind::sgd, attrs, {}, {}, {}};
        test.inputs = {any,
                       any,
                       momentum ? any : absent(),
                       floats({3}, {3e-4, 1, 1}),
                       floats({1}, {0.7}),
                       ints(DType::i32, {1}, {apply})};
        test.outputs = {any.type, momentum ? any.type : none, {DType::bf16, shape}};
        expect_same_bits(test);
      }
    }
  }
}

TEST(CpuUpdate, SumOfSquares) {
  for (const DType c : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t count : {1, 16, 16385, 200003}) {
      expect_like_ref(
          {OpKind::sum_squares, {}, {random_operand(c, {count})}, {{DType::f64, {1}}}, {}}, 1e-12);
    }
  }
}

TEST(CpuUpdate, VerdictClipsScalesAndRefuses) {
  for (const double sum : {4.0, 1e8, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    for (const double max_norm : {0.0, 1.0}) {
      const Attrs attrs{{"max_norm", max_norm}};
      const TensorType one{DType::f32, {1}};
      expect_like_ref(
          {OpKind::verdict,
           attrs,
           {floats({1}, {0.5}), floats({1}, {sum}, DType::f64), floats({1}, {2.0}, DType::f64)},
           {one, one, {DType::i32, {1}}},
           {}},
          1e-7);
    }
  }
}

/// Starts within a block and within a vector, and past numbers whose blocks have more than 32 bits.
TEST(CpuUpdate, WordsAreThoseOfEachElement) {
  constexpr uint64_t kKey = 0x0123456789abcdefu;
  for (const int64_t number : {int64_t{0}, int64_t{3}, int64_t{30}, (int64_t{1} << 34) - 7}) {
    for (const int64_t count : {1, 2, 5, 64, 131, 1000}) {
      std::vector<uint32_t> words(static_cast<size_t>(count) + 1, 77);
      update_isa().words(kKey, number, count, words.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(words[static_cast<size_t>(i)],
                  element_word(kKey, static_cast<uint64_t>(number + i)))
            << number << " + " << i << " of " << count;
      }
      EXPECT_EQ(words.back(), 77u);
    }
  }
}

}  // namespace
}  // namespace weft::cpu
