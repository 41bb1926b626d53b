// The memory of three tiers and the transfers between them.
#include "weft/runtime/tier_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "weft/base/error.h"
#include "weft/runtime/test_backend.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Two buffers of 3000 floats per tier; buffer 2 t + i is the i-th of tier t.
class TierMemoryTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 3000;
  static constexpr int64_t kStride = 12'288;

  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("weft-tier-memory-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    cold_.folders = {folder_.string()};
    cold_.run = "test";
    for (int t = 0; t < kNumTiers; ++t) {
      for (int i = 0; i < 2; ++i) {
        PlanBuffer buffer;
        buffer.tier = static_cast<Tier>(t);
        buffer.offset = i * kStride;
        buffer.type = {DType::f32, {kElements}};
        buffer.bytes = buffer.type.bytes();
        plan_.buffers.push_back(buffer);
      }
      plan_.tiers[static_cast<size_t>(t)].peak_bytes = 2 * kStride;
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::vector<float> numbers(float first, int64_t count = kElements) {
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  static void write(TierMemory& memory, int32_t buffer, const std::vector<float>& values) {
    memory.write(buffer, 0, values.data(), static_cast<int64_t>(values.size() * 4));
  }
  static std::vector<float> read(TierMemory& memory, int32_t buffer) {
    std::vector<float> values(kElements);
    memory.read(buffer, 0, values.data(), kElements * 4);
    return values;
  }

  PlanStep load(int32_t from, int32_t to, int64_t begin, int64_t size) const {
    PlanStep step;
    step.op = OpKind::load;
    step.attrs = {{"begin", begin}, {"size", size}};
    step.inputs = {from};
    step.outputs = {to};
    step.input_types = {plan_.buffers[0].type};
    step.output_types = {{DType::f32, {size}}};
    return step;
  }
  PlanStep store(int32_t from, int32_t to, int64_t begin, int64_t size) const {
    PlanStep step;
    step.op = OpKind::store;
    step.attrs = {{"begin", begin}};
    step.inputs = {from, to};
    step.outputs = {to};
    step.input_types = {{DType::f32, {size}}, plan_.buffers[0].type};
    step.output_types = {plan_.buffers[0].type};
    return step;
  }

  Plan plan_;
  TestBackend backend_;
  ColdOptions cold_;
  fs::path folder_;
};

TEST_F(TierMemoryTest, EveryTierKeepsWhatIsWritten) {
  TierMemory memory(plan_, backend_, &cold_);
  for (int32_t id = 0; id < 6; ++id) write(memory, id, numbers(static_cast<float>(id * 10'000)));
  for (int32_t id = 0; id < 6; ++id) {
    EXPECT_EQ(read(memory, id), numbers(static_cast<float>(id * 10'000))) << id;
    EXPECT_EQ(memory.address(id) == nullptr, memory.tier(id) == Tier::nvme);
  }
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    EXPECT_EQ(memory.used_bytes(tier), 2 * kStride);
  }
}

TEST_F(TierMemoryTest, LoadsMoveAPieceOfTheirSource) {
  TierMemory memory(plan_, backend_, &cold_);
  for (int32_t from = 0; from < 6; from += 2) {
    for (int32_t to = 1; to < 6; to += 2) {
      if (memory.tier(from) == Tier::nvme && memory.tier(to) == Tier::nvme) continue;
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      write(memory, from, numbers(1));
      write(memory, to, numbers(50'000));
      memory.transfer(load(from, to, 1024, 700))->run({});
      std::vector<float> got(700);
      memory.read(to, 0, got.data(), 700 * 4);
      EXPECT_EQ(got, numbers(1 + 1024, 700));
    }
  }
}

TEST_F(TierMemoryTest, StoresFillAPieceOfTheirTarget) {
  TierMemory memory(plan_, backend_, &cold_);
  for (int32_t from = 0; from < 4; from += 2) {
    for (int32_t to = 1; to < 6; to += 2) {
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      write(memory, from, numbers(1));
      write(memory, to, numbers(50'000));
      memory.transfer(store(from, to, 1024, 1024))->run({});
      std::vector<float> expected = numbers(50'000);
      const std::vector<float> moved = numbers(1, 1024);
      std::copy(moved.begin(), moved.end(), expected.begin() + 1024);
      EXPECT_EQ(read(memory, to), expected);
    }
  }
}

TEST_F(TierMemoryTest, ColdTrafficIsCounted) {
  TierMemory memory(plan_, backend_, &cold_);
  write(memory, 0, numbers(1));
  write(memory, 4, numbers(2));
  const ColdCounters before = memory.cold_counters();
  memory.transfer(store(0, 4, 0, 1024))->run({});
  memory.transfer(load(4, 1, 0, 500))->run({});
  EXPECT_EQ(memory.cold_counters().bytes_written - before.bytes_written, 4096);
  EXPECT_EQ(memory.cold_counters().bytes_read - before.bytes_read, 2000);
}

TEST_F(TierMemoryTest, APlanWithoutTiersNeedsNoFolder) {
  EXPECT_THROW(TierMemory(plan_, backend_, nullptr), BugError);
  plan_.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes = 0;
  const TierMemory memory(plan_, backend_, nullptr);
  EXPECT_EQ(memory.used_bytes(Tier::nvme), 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(TierMemoryTest, MemoryThatIsNotThereIsNamed) {
  plan_.tiers[static_cast<size_t>(Tier::host)].peak_bytes = int64_t{1} << 60;
  try {
    const TierMemory memory(plan_, backend_, &cold_);
    FAIL() << "got 2^60 bytes of host memory";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("host memory"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
}

TEST_F(TierMemoryTest, SnapshotsAreNoPartOfTheArena) {
  plan_.snapshot_bytes = kStride;
  const TierMemory memory(plan_, backend_, &cold_);
  EXPECT_EQ(memory.used_bytes(Tier::host), 2 * kStride);
}

}  // namespace
}  // namespace weft
