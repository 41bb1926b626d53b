#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "weft/backend/backend.h"
#include "weft/backend/host_arena.h"
#include "weft/base/error.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

template <class E>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(MakeBackend, MakesEachBackendByName) {
  for (const std::string_view name : {"ref", "cpu", "null"}) {
    EXPECT_EQ(make_backend(name, {})->name(), name);
  }
}

TEST(MakeBackend, UnknownNameIsAUsageError) {
  EXPECT_EQ(message_of<UsageError>([] { make_backend("tpu", {}); }),
            "[device.backend] got \"tpu\", expected one of cpu, cuda, null, ref; try \"cpu\"");
}

TEST(HostArena, IsAlignedZeroedAndExactlyAsLarge) {
  for (const int64_t bytes : {0, 1, 4096, 100001}) {
    const auto arena = allocate_host_arena(bytes);
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 4096, 0u);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(arena->data()[i], std::byte{0});
  }
}

TEST(HostArena, TooLargeIsAResourceErrorWithTheNumber) {
  const int64_t bytes = int64_t{1} << 60;
  EXPECT_NE(
      message_of<ResourceError>([&] { allocate_host_arena(bytes); }).find("1152921504606846976"),
      std::string::npos);
}

TEST(NullBackend, TakesEveryKernelAndTouchesNothing) {
  const auto backend = make_backend("null", {});
  const KernelSpec spec{
      OpKind::add, {}, {{DType::f32, {2}}, {DType::f32, {2}}}, {{DType::f32, {2}}}};
  ASSERT_TRUE(backend->supports(spec));
  EXPECT_EQ(backend->workspace_bytes(spec), 0);
  const float a[2] = {1, 2};
  float y[2] = {7, 7};
  const void* inputs[] = {a, a};
  void* outputs[] = {y};
  backend->prepare(spec)->run({inputs, outputs});
  EXPECT_EQ(y[0], 7);
  const auto arena = backend->allocate(8);
  backend->copy_to_device(arena->data(), a, 8);
  backend->copy_to_host(y, arena->data(), 8);
  EXPECT_EQ(y[1], 2);
}

TEST(RefBackend, RefusesWhatItCannotRun) {
  const auto backend = make_backend("ref", {});
  const KernelSpec bytes{OpKind::add, {}, {{DType::u8, {2}}, {DType::u8, {2}}}, {{DType::u8, {2}}}};
  EXPECT_FALSE(backend->supports(bytes));
  EXPECT_NE(message_of<BugError>([&] { backend->prepare(bytes); }).find("add"), std::string::npos);
}

}  // namespace
}  // namespace weft
