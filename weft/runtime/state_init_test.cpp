#include "weft/runtime/state_init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "weft/base/error.h"
#include "weft/runtime/session.h"

namespace weft {
namespace {

PlanState state_of(std::string name, DType dtype, Shape shape, StateInit init,
                   LogicalSlice logical) {
  PlanState state;
  state.name = std::move(name);
  state.type = {dtype, std::move(shape)};
  state.init = std::move(init);
  state.logical = std::move(logical);
  return state;
}

StateInit normal() { return {StateInit::Kind::normal, 0.5, ""}; }

std::vector<float> values_of(const PlanState& state, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(state.type.elements()));
  fill_state(state, seed, 0, state.type.elements(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST(StateInit, B66_EveryPieceDrawsItsElementsOfTheWholeTensor) {
  const Shape shape = {5, 4, 6};
  const std::vector<float> whole =
      values_of(state_of("w", DType::f32, shape, normal(), {"w", shape, {0, 0, 0}}), 3);
  const std::pair<Shape, Shape> boxes[] = {{{0, 0, 0}, {5, 4, 6}}, {{1, 0, 0}, {3, 4, 6}},
                                           {{2, 1, 0}, {2, 3, 6}}, {{0, 2, 3}, {5, 2, 2}},
                                           {{4, 3, 5}, {1, 1, 1}}, {{0, 0, 0}, {0, 4, 6}}};
  for (const auto& [begin, extent] : boxes) {
    const int64_t elements = num_elements(extent);
    const std::vector<float> box =
        values_of(state_of("w", DType::f32, extent, normal(), {"w", shape, begin}), 3);
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t z = begin[2] + i % extent[2];
      const int64_t y = begin[1] + i / extent[2] % extent[1];
      const int64_t x = begin[0] + i / extent[2] / extent[1];
      ASSERT_EQ(box[static_cast<size_t>(i)], whole[static_cast<size_t>((x * 4 + y) * 6 + z)]);
    }
    // Every flat range of the box is that stretch of it, however it is drawn.
    for (int64_t first = 0; first <= elements; ++first) {
      for (const int64_t count :
           {int64_t{0}, int64_t{1}, (elements - first) / 2, elements - first}) {
        if (first + count > elements) continue;
        const PlanState flat =
            state_of("w", DType::f32, {count}, normal(), {"w", shape, begin, extent, first});
        const std::vector<float> range = values_of(flat, 3);
        const std::vector<float> expected(box.begin() + first, box.begin() + first + count);
        ASSERT_EQ(range, expected) << shape_text(extent) << " " << first << " + " << count;
        float last = 0;
        if (count == 0) continue;
        fill_state(flat, 3, count - 1, 1, reinterpret_cast<std::byte*>(&last));
        ASSERT_EQ(last, expected.back());
      }
    }
  }
}

TEST(StateInit, OtherSeedsAndNamesDrawOtherValues) {
  const auto draw = [](const std::string& name, uint64_t seed) {
    return values_of(state_of(name, DType::f32, {8}, normal(), {name, {8}, {0}}), seed);
  };
  EXPECT_EQ(draw("a", 1), draw("a", 1));
  EXPECT_NE(draw("a", 1), draw("a", 2));
  EXPECT_NE(draw("a", 1), draw("b", 1));
}

TEST(StateInit, SamePieceMeansSameElementsInTheSameOrder) {
  const PlanState whole = state_of("a", DType::f32, {4, 6}, {}, {"w", {4, 6}, {0, 0}});
  EXPECT_TRUE(same_piece(whole, state_of("b", DType::bf16, {4, 6}, {}, {"w", {4, 6}, {0, 0}})));
  EXPECT_FALSE(same_piece(whole, state_of("b", DType::f32, {2, 6}, {}, {"w", {4, 6}, {0, 0}})));
  EXPECT_FALSE(
      same_piece(whole, state_of("b", DType::f32, {12}, {}, {"w", {4, 6}, {0, 0}, {4, 6}, 12})));
  EXPECT_FALSE(same_piece(state_of("a", DType::f32, {12}, {}, {"w", {4, 6}, {0, 0}, {4, 6}, 0}),
                          state_of("b", DType::f32, {12}, {}, {"w", {4, 6}, {0, 0}, {4, 6}, 12})));
  const PlanState other =
      state_of("b", DType::bf16, {4, 6}, {StateInit::Kind::copy, 0, "a"}, {"v", {4, 6}, {0, 0}});
  EXPECT_THROW(drawn_for_copy(other, whole), BugError);
}

/// Memory alone.
class MemoryBackend : public Backend {
 public:
  class Arena : public DeviceArena {
   public:
    explicit Arena(int64_t bytes) : memory_(static_cast<size_t>(bytes), std::byte{0xcd}) {}
    std::byte* data() override { return memory_.data(); }
    int64_t bytes() const override { return static_cast<int64_t>(memory_.size()); }

   private:
    std::vector<std::byte> memory_;
  };
  std::string_view name() const override { return "memory"; }
  bool supports(const KernelSpec&) const override { return false; }
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
  std::unique_ptr<DeviceArena> allocate(int64_t bytes) override {
    return std::make_unique<Arena>(bytes);
  }
  std::unique_ptr<Kernel> prepare(const KernelSpec&) override { return nullptr; }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
};

/// A plan that holds states and nothing else.
Plan plan_of(std::vector<PlanState> states) {
  Plan plan;
  int64_t at = 0;
  for (PlanState& state : states) {
    state.buffer = static_cast<int32_t>(plan.buffers.size());
    PlanBuffer buffer;
    buffer.offset = at;
    buffer.bytes = state.type.bytes();
    buffer.type = state.type;
    at += (buffer.bytes + kBufferAlignment) / kBufferAlignment * kBufferAlignment;
    plan.buffers.push_back(buffer);
  }
  plan.states = std::move(states);
  plan.tiers[0].peak_bytes = at;
  return plan;
}

TEST(StateInit, B66_CopiesOfAnotherPieceStartAsConvertedInitialValues) {
  // Weights of a whole matrix beside the second half of their masters, and a local pair.
  const Shape shape = {6, 4};
  const LogicalSlice whole{"w", shape, {0, 0}};
  const auto copy = [](const char* name) { return StateInit{StateInit::Kind::copy, 0, name}; };
  const Plan plan = plan_of({
      state_of("w", DType::bf16, shape, copy("w@master"), whole),
      state_of("w@master", DType::f32, {12}, normal(), {"w", shape, {0, 0}, shape, 12}),
      state_of("n", DType::f32, {4}, copy("n@master"), {"n", {4}, {0}}),
      state_of("n@master", DType::f32, {2}, {StateInit::Kind::ones, 0, ""},
               {"n", {4}, {0}, {4}, 2}),
      state_of("l", DType::bf16, {4}, copy("l@master"), {"l", {4}, {0}}),
      state_of("l@master", DType::f32, {4}, normal(), {"l", {4}, {0}}),
  });
  MemoryBackend backend;
  Session session(plan, backend);
  session.init_states(9);
  const std::vector<float> drawn = values_of(state_of("w", DType::f32, shape, normal(), whole), 9);
  std::vector<BF16> weights(24);
  session.read_state(0, weights.data());
  std::vector<float> masters(12);
  session.read_state(1, masters.data());
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(weights[i].bits, to_bf16(drawn[i]).bits) << i;
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(masters[i], drawn[12 + i]) << i;
  std::vector<float> ones(4);
  session.read_state(2, ones.data());
  EXPECT_EQ(ones, std::vector<float>(4, 1.0f));
  // refresh_copies makes local copies anew and leaves the others as they are.
  const std::vector<BF16> zeros(24);
  session.write_state(0, zeros.data());
  session.write_state(4, zeros.data());
  session.refresh_copies();
  session.read_state(0, weights.data());
  EXPECT_EQ(weights[5].bits, 0);
  std::vector<float> local_masters(4);
  std::vector<BF16> local(4);
  session.read_state(5, local_masters.data());
  session.read_state(4, local.data());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(local[i].bits, to_bf16(local_masters[i]).bits);
}

}  // namespace
}  // namespace weft
