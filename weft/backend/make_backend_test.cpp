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

TEST(HostArena, IsExactlyAsLarge) {
  for (const int64_t bytes : {0, 1, 100001}) EXPECT_EQ(allocate_host_arena(bytes)->bytes(), bytes);
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
