// The cold tier on disks that fail, are full, are slow or flip bits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "weft/base/check.h"
#include "weft/io/cold/cold_test_util.h"
#include "weft/io/cold/faulty_engine.h"

namespace weft {
namespace {

using ColdFaultTest = ColdTest;
INSTANTIATE_TEST_SUITE_P(Engines, ColdFaultTest, testing::ValuesIn(kColdCases), cold_case_name);

constexpr int64_t kBytes = 104097;  // 7 blocks of 16384, the last one of 4096 + 1697 bytes
constexpr int64_t kSpace = 1 << 18;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_P(ColdFaultTest, B17_AFailingRequestIsAnErrorThatNamesPathOffsetAndBytes) {
  for (const int error : {ENOSPC, EDQUOT, EIO}) {
    for (const bool write : {true, false}) {
      int64_t failed = 0;
      for (int64_t call = 0;; ++call) {
        IoFaults faults;
        ColdOptions setup = options(kSpace, 2);
        setup.wrap_engine = faults.wrapper();
        const auto store = ColdStore::open(setup);
        if (!write) write_pattern(*store, 0, kBytes, 1);
        faults.add({.write = write, .skip = call, .times = 1, .error = error});
        const std::string text = error_of<ResourceError>([&] {
          if (write) {
            write_pattern(*store, 0, kBytes, 1);
          } else {
            holds_pattern(*store, 0, kBytes, 1);
          }
        });
        faults.clear();
        if (text.empty()) {
          EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 1));
          break;
        }
        ++failed;
        EXPECT_TRUE(has(text, store->paths()[0]) || has(text, store->paths()[1])) << text;
        EXPECT_TRUE(has(text, write ? "cannot write" : "cannot read") && has(text, " at byte "))
            << text;
        EXPECT_EQ(has(text, "needed") && has(text, "free"), error != EIO) << text;
        if (write) {
          EXPECT_THROW(holds_pattern(*store, 0, kBytes, 1), BugError) << "half written, yet read";
          write_pattern(*store, 0, kBytes, 1);
        }
        EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 1)) << "the store is of use afterwards";
        ASSERT_LT(call, 100);
      }
      // With direct I/O the odd end is a request of its own.
      EXPECT_EQ(failed, GetParam().direct ? 8 : 7);
    }
  }
}

TEST_P(ColdFaultTest, B17_AFullDiskStopsTheWrite) {
  for (const int64_t capacity : {0, 4096, 50000}) {
    IoFaults faults;
    ColdOptions setup = options(kSpace);
    setup.wrap_engine = faults.wrapper();
    const auto store = ColdStore::open(setup);
    faults.set_capacity(capacity);
    const std::string text = error_of<ResourceError>([&] { write_pattern(*store, 0, kBytes, 1); });
    EXPECT_TRUE(has(text, store->paths()[0]) && has(text, "the disk is full, needed")) << text;
  }
}

TEST_P(ColdFaultTest, B16_ShortReadsAndWritesAreContinued) {
  for (const bool write : {true, false}) {
    for (const int64_t piece : {1, 7, 512, 1000, 4096, 5000, 16383}) {
      // Direct I/O goes on in units of 4096, so shorter counts must end at some time.
      const bool for_ever = piece >= kColdAlign || !GetParam().direct;
      if (piece < 512 && for_ever) continue;  // 10^5 requests
      IoFaults faults;
      ColdOptions setup = options(kSpace, 2);
      setup.wrap_engine = faults.wrapper();
      const auto store = ColdStore::open(setup);
      faults.add({.write = write, .times = for_ever ? -1 : 20, .short_bytes = piece});
      write_pattern(*store, 0, kBytes, 2);
      EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 2)) << piece << (write ? " write" : " read");
      EXPECT_GT(faults.requests(write), 8);
      if (GetParam().direct) continue;
      EXPECT_GE(faults.requests(write), kBytes / piece);
    }
  }
}

TEST_P(ColdFaultTest, B17_ADiskThatNeverGetsOnIsAnErrorNotAStall) {
  for (const bool write : {true, false}) {
    for (const int error : {EAGAIN, EINTR}) {
      IoFaults faults;
      ColdOptions setup = options(kSpace);
      setup.wrap_engine = faults.wrapper();
      const auto store = ColdStore::open(setup);
      faults.add({.write = write, .times = 5, .error = error});
      write_pattern(*store, 0, kBytes, 3);
      EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 3));
      faults.add({.write = write, .error = error});
      const std::string text = error_of<ResourceError>([&] {
        write_pattern(*store, 0, kBytes, 3);
        holds_pattern(*store, 0, kBytes, 3);
      });
      EXPECT_TRUE(has(text, store->paths()[0]) && has(text, errno_text(error))) << text;
    }
  }
}

TEST_P(ColdFaultTest, AFlippedBitIsFoundWithItsPathAndOffset) {
  // In the first request, in the second, and in the last.
  const bool direct = GetParam().direct;
  const int64_t last = direct ? 7 : 6;
  for (const int64_t request : {int64_t{0}, int64_t{1}, last}) {
    IoFaults faults;
    ColdOptions setup = options(kSpace);
    setup.queue_depth = 1;
    setup.wrap_engine = faults.wrapper();
    const auto store = ColdStore::open(setup);
    write_pattern(*store, 0, kBytes, 4);
    faults.add({.write = false, .skip = request, .times = 1, .flip_byte = 1000});
    const std::string text = error_of<ResourceError>([&] { holds_pattern(*store, 0, kBytes, 4); });
    EXPECT_TRUE(has(text, store->paths()[0])) << text;
    const int64_t offset = request == 7 ? 102400 : request * 16384;
    EXPECT_TRUE(has(text, fmt::format("at byte {} (checksum", offset))) << text;
    EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 4)) << "the disk itself is right";
  }
}

TEST_P(ColdFaultTest, BytesChangedOnDiskAreFound) {
  for (const int64_t byte : {int64_t{0}, int64_t{40000}, kBytes - 1}) {
    const auto store = ColdStore::open(options(kSpace));
    write_pattern(*store, 0, kBytes, 5);
    const int file = ::open(store->paths()[0].c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    char value = 0;
    ASSERT_EQ(::pread(file, &value, 1, byte), 1);
    EXPECT_EQ(value, cold_pattern(kBytes, 5)[static_cast<size_t>(byte)]);
    value ^= 1;
    ASSERT_EQ(::pwrite(file, &value, 1, byte), 1);
    ASSERT_EQ(::fsync(file), 0);
    ::close(file);
    EXPECT_TRUE(has(error_of<ResourceError>([&] { holds_pattern(*store, 0, kBytes, 5); }),
                    "other bytes than were written"))
        << byte;
    // A part that holds the block whole is checked as well.
    const int64_t block = byte / 16384 * 16384;
    std::vector<char> part(static_cast<size_t>(std::min(kBytes - block, int64_t{16384})));
    EXPECT_THROW(store->read(block, part.data(), static_cast<int64_t>(part.size())), ResourceError);
  }
}

TEST_P(ColdFaultTest, WithoutChecksumsNothingIsCompared) {
  IoFaults faults;
  ColdOptions setup = options(kSpace);
  setup.checksum = false;
  setup.wrap_engine = faults.wrapper();
  const auto store = ColdStore::open(setup);
  write_pattern(*store, 0, kBytes, 6);
  EXPECT_TRUE(holds_pattern(*store, 0, kBytes, 6));
  EXPECT_EQ(store->counters().bytes_verified, 0);
  faults.add({.write = false, .times = 1, .flip_byte = 10});
  EXPECT_FALSE(holds_pattern(*store, 0, kBytes, 6)) << "the injected flip itself works";
}

TEST_P(ColdFaultTest, AFileCutByOthersIsAnError) {
  const auto store = ColdStore::open(options(kSpace));
  write_pattern(*store, 0, kBytes, 7);
  ASSERT_EQ(::truncate(store->paths()[0].c_str(), 50000), 0);
  const std::string text = error_of<ResourceError>([&] { holds_pattern(*store, 0, kBytes, 7); });
  EXPECT_TRUE(has(text, store->paths()[0]) && has(text, "no progress")) << text;
}

TEST_P(ColdFaultTest, StripesOfDifferentSpeedGiveTheSameBytes) {
  IoFaults faults;
  ColdOptions setup = options(1 << 20, 3);
  setup.wrap_engine = faults.wrapper();
  const auto store = ColdStore::open(setup);
  for (const bool write : {true, false}) {
    faults.add({.write = write, .path_part = "stripe-1", .hold = 5});
    faults.add({.write = write, .path_part = "stripe-2", .skip = 1, .hold = 2});
  }
  std::vector<std::vector<char>> data;
  std::vector<ColdTransfer> transfers;
  for (uint64_t i = 0; i < 4; ++i) data.push_back(cold_pattern(kBytes, i));
  for (size_t i = 0; i < 4; ++i) {
    transfers.push_back(
        store->begin_write(static_cast<int64_t>(i) * kSpace, data[i].data(), kBytes));
  }
  for (const ColdTransfer transfer : transfers) store->wait(transfer);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(holds_pattern(*store, static_cast<int64_t>(i) * kSpace, kBytes, i)) << i;
  }
}

TEST_P(ColdFaultTest, AFailedTransferDoesNotHarmTheNextOne) {
  IoFaults faults;
  ColdOptions setup = options(kSpace);
  setup.wrap_engine = faults.wrapper();
  const auto store = ColdStore::open(setup);
  faults.add({.times = 1, .error = EIO, .hold = 3});
  const std::vector<char> one = cold_pattern(kBytes, 1);
  const std::vector<char> two = cold_pattern(kBytes, 2);
  const ColdTransfer first = store->begin_write(0, one.data(), kBytes);
  const ColdTransfer second = store->begin_write(kSpace / 2, two.data(), kBytes);
  EXPECT_THROW(store->wait(first), ResourceError);
  store->wait(second);
  EXPECT_TRUE(holds_pattern(*store, kSpace / 2, kBytes, 2));
  EXPECT_EQ(store->counters().bytes_written, kBytes);
}

}  // namespace
}  // namespace weft
