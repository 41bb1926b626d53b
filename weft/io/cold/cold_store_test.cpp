#include "weft/io/cold/cold_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "weft/base/check.h"
#include "weft/io/cold/cold_files.h"
#include "weft/io/cold/cold_probe.h"
#include "weft/io/cold/cold_test_util.h"
#include "weft/io/file.h"

namespace weft {
namespace {

INSTANTIATE_TEST_SUITE_P(Engines, ColdTest, testing::ValuesIn(kColdCases), cold_case_name);

TEST_P(ColdTest, RandomTransfersAgreeWithAModelInMemory) {
  const int64_t sizes[] = {1,    2,    511,   512,   513,   4095,  4096,
                           4097, 8191, 16384, 16385, 50001, 120000};
  constexpr int64_t kSlot = 131072;
  constexpr int64_t kSlots = 12;
  for (const int stripes : {1, 2, 3}) {
    const auto store = ColdStore::open(options(kSlot * kSlots, stripes));
    std::mt19937 random(static_cast<unsigned>(stripes));
    std::vector<std::vector<char>> model(kSlots);
    for (int step = 0; step < 300; ++step) {
      const int64_t slot = static_cast<int64_t>(random() % kSlots);
      std::vector<char>& held = model[static_cast<size_t>(slot)];
      const int64_t shift = random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % 4096);
      if (held.empty() || random() % 2 == 0) {
        held = cold_pattern(sizes[random() % std::size(sizes)], random());
        ShiftedMemory memory(static_cast<int64_t>(held.size()), shift);
        std::memcpy(memory.data(), held.data(), held.size());
        store->write(slot * kSlot, memory.data(), static_cast<int64_t>(held.size()));
      } else {
        // Any part that begins at a legal address.
        const auto size = static_cast<int64_t>(held.size());
        const int64_t begin = static_cast<int64_t>(random()) % ((size + 4095) / 4096) * 4096;
        const int64_t bytes = 1 + static_cast<int64_t>(random()) % (size - begin);
        ShiftedMemory memory(bytes + 1, shift);
        memory.data()[bytes] = 'e';
        store->read(slot * kSlot + begin, memory.data(), bytes);
        ASSERT_EQ(std::memcmp(memory.data(), held.data() + begin, static_cast<size_t>(bytes)), 0)
            << stripes << " stripes, step " << step;
        ASSERT_EQ(memory.data()[bytes], 'e') << "written behind the end, step " << step;
      }
    }
  }
}

TEST_P(ColdTest, B16_TensorsOfOddSizesKeepEveryByte) {
  std::vector<int64_t> sizes = {1, 3, 7, 127, 129, 511, 512, 513, 4095, 4096, 4097, 100003};
  for (const int64_t hidden : {1, 3, 7, 127, 129}) {
    for (const int64_t item : {2, 4}) {
      sizes.push_back(hidden * item);
      sizes.push_back(hidden * 257 * item);
    }
  }
  int64_t end = 0;
  std::vector<int64_t> addresses;
  for (const int64_t size : sizes) {
    addresses.push_back(end);
    end += round_up(size, kColdAlign);
  }
  const auto store = ColdStore::open(options(end, 2));
  for (const uint64_t round : {1u, 2u}) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      write_pattern(*store, addresses[i], sizes[i], round * 1000 + i);
    }
    // The padding of one tensor touches no other.
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(holds_pattern(*store, addresses[i], sizes[i], round * 1000 + i)) << sizes[i];
    }
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  EXPECT_EQ(store->counters().bytes_verified, 2 * total) << "a tail went unverified";
  EXPECT_EQ(store->counters().bytes_read, 2 * total);
  EXPECT_EQ(store->counters().bytes_written, 2 * total);
  EXPECT_GT(store->counters().read_seconds, 0);
  EXPECT_GT(store->counters().write_seconds, 0);
}

TEST_P(ColdTest, ManyTransfersInFlightEndInAnyOrder) {
  const auto store = ColdStore::open(options(1 << 20, 3));
  constexpr int64_t kBytes = 100000;
  constexpr int64_t kStride = 102400;
  std::vector<std::vector<char>> data;
  std::vector<ColdTransfer> transfers;
  for (uint64_t i = 0; i < 10; ++i) {
    data.push_back(cold_pattern(kBytes, i));
    transfers.push_back(
        store->begin_write(static_cast<int64_t>(i) * kStride, data.back().data(), kBytes));
  }
  for (const size_t i : {3u, 0u, 9u, 1u, 2u, 8u, 7u, 4u, 6u, 5u}) store->wait(transfers[i]);
  std::vector<std::vector<char>> back(10, std::vector<char>(kBytes));
  for (size_t i = 0; i < 10; ++i) {
    transfers[i] = store->begin_read(static_cast<int64_t>(i) * kStride, back[i].data(), kBytes);
  }
  for (size_t i = 10; i-- > 0;) {
    store->wait(transfers[i]);
    EXPECT_TRUE(back[i] == data[i]) << i;
  }
  EXPECT_THROW(store->wait(transfers[0]), BugError) << "waited for twice";
}

TEST_P(ColdTest, AReaderAndAWriterWorkAtTheSameTime) {
  constexpr int64_t kHalf = 1 << 19;
  constexpr int kRounds = 20;
  const auto store = ColdStore::open(options(2 * kHalf, 2));
  std::barrier meet(2);
  std::thread writer([&] {
    for (int round = 0; round <= kRounds; ++round) {
      write_pattern(*store, round % 2 * kHalf, kHalf, static_cast<uint64_t>(round));
      meet.arrive_and_wait();
    }
  });
  int wrong = 0;
  meet.arrive_and_wait();
  for (int round = 0; round < kRounds; ++round) {
    if (!holds_pattern(*store, round % 2 * kHalf, kHalf, static_cast<uint64_t>(round))) ++wrong;
    meet.arrive_and_wait();
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(ColdTest, RegisteredMemoryServesTransfersInsideAndAcrossIt) {
  const auto store = ColdStore::open(options(1 << 20));
  ShiftedMemory arena(3 << 18, 0);
  const std::vector<char> data = cold_pattern(3 << 18, 1);
  std::memcpy(arena.data(), data.data(), data.size());
  store->register_memory(arena.data(), 1 << 17);
  store->register_memory(arena.data() + (1 << 18), 1 << 17);
  store->write(0, arena.data(), 3 << 18);
  std::memset(arena.data(), 0, 3 << 18);
  store->read(0, arena.data(), 3 << 18);
  EXPECT_EQ(std::memcmp(arena.data(), data.data(), data.size()), 0);
}

TEST_P(ColdTest, TransfersUnderWayAreFinishedBeforeTheStoreGoes) {
  std::vector<char> data = cold_pattern(1 << 20, 1);
  const ColdOptions setup = options(1 << 20);
  for (int i = 0; i < 5; ++i) {
    auto store = ColdStore::open(setup);
    store->begin_write(0, data.data(), 1 << 20);
    store.reset();
    std::fill(data.begin(), data.end(), 'q');  // ASan and TSan would see a late transfer
  }
  EXPECT_FALSE(posix_files().is_file(cold_file_path(setup.folders[0], "test", 0, 0)));
}

TEST_P(ColdTest, AReadOfWhatWasNeverWrittenIsABug) {
  const auto store = ColdStore::open(options(1 << 20));
  std::vector<char> data(1 << 16);
  EXPECT_THROW(store->read(0, data.data(), 1), BugError);
  store->write(0, data.data(), 5000);
  EXPECT_NO_THROW(store->read(0, data.data(), 5000));
  EXPECT_THROW(store->read(0, data.data(), 5001), BugError);
  store->write(8192, data.data(), 5000);
  EXPECT_THROW(store->read(0, data.data(), 9000), BugError) << "the gap was never written";
  store->write(0, data.data(), 8192);
  EXPECT_NO_THROW(store->read(0, data.data(), 9000));
  EXPECT_NO_THROW(store->read(0, data.data(), 0));
  EXPECT_THROW(store->write(1 << 20, data.data(), 1), BugError) << "behind the end";
  EXPECT_THROW(store->write(512, data.data(), 1), BugError) << "address not aligned";
}

TEST_P(ColdTest, OverlappingTransfersAreABug) {
  const auto store = ColdStore::open(options(1 << 20));
  std::vector<char> data(1 << 16);
  const ColdTransfer first = store->begin_write(0, data.data(), 1 << 16);
  EXPECT_THROW(store->begin_write(4096, data.data(), 10), BugError);
  EXPECT_THROW(store->begin_read(0, data.data(), 10), BugError);
  store->wait(first);
  const ColdTransfer read = store->begin_read(0, data.data(), 1 << 16);
  EXPECT_THROW(store->begin_write(4096, data.data(), 10), BugError);
  EXPECT_NO_THROW(store->wait(store->begin_read(4096, data.data(), 10)));
  store->wait(read);
}

/// Ends one request per wait, the oldest first, and moves nothing.
class FifoEngine : public IoEngine {
 public:
  explicit FifoEngine(std::vector<size_t>& in_flight) : in_flight_(in_flight) {}
  std::string name() const override { return "fifo"; }
  void submit(std::span<const IoRequest> requests) override {
    queue_.insert(queue_.end(), requests.begin(), requests.end());
  }
  void wait(std::vector<IoResult>& results) override {
    in_flight_.push_back(queue_.size());
    results.push_back({queue_.front().tag, queue_.front().bytes});
    queue_.pop_front();
  }
  int register_memory(char*, int64_t) override { return 0; }

 private:
  std::vector<size_t>& in_flight_;
  std::deque<IoRequest> queue_;
};

TEST(ColdStore, TheQueueStaysFullBetweenConsecutiveChunks) {
  const TestFolder folder;
  constexpr int64_t kChunk = 8 * 4096;
  constexpr int64_t kChunks = 6;
  std::vector<char> data(kChunk);
  std::vector<size_t> in_flight;
  ColdOptions options;
  options.folders = {folder.path()};
  options.bytes = kChunk * kChunks;
  options.block_bytes = 4096;
  options.queue_depth = 4;
  options.wrap_engine = [&](std::unique_ptr<IoEngine>, const std::vector<std::string>&) {
    return std::make_unique<FifoEngine>(in_flight);
  };
  for (const int64_t ahead : {1, 2}) {
    auto store = ColdStore::open(options);
    in_flight.clear();
    std::deque<ColdTransfer> flying;
    for (int64_t i = 0; i < kChunks; ++i) {
      if (static_cast<int64_t>(flying.size()) == ahead) {
        store->wait(flying.front());
        flying.pop_front();
      }
      flying.push_back(store->begin_write(i * kChunk, data.data(), kChunk));
    }
    while (!flying.empty()) {
      store->wait(flying.front());
      flying.pop_front();
    }
    ASSERT_EQ(in_flight.size(), static_cast<size_t>(kChunks * 8));
    // All but the last three waits find the queue full; one chunk at a time drains it.
    const size_t least = *std::min_element(in_flight.begin(), in_flight.end() - 3);
    EXPECT_EQ(least, ahead == 2 ? 4u : 1u);
  }
}

TEST(ColdStore, OptionsOutOfRangeAreRefused) {
  const TestFolder folder;
  ColdOptions good;
  good.folders = {folder.path()};
  good.bytes = 4096;
  EXPECT_NO_THROW(ColdStore::open(good));
  ColdOptions bad = good;
  bad.folders.clear();
  EXPECT_THROW(ColdStore::open(bad), UsageError);
  for (const int64_t block : {int64_t{0}, int64_t{1000}, int64_t{4097}, int64_t{1} << 31}) {
    bad = good;
    bad.block_bytes = block;
    EXPECT_THROW(ColdStore::open(bad), UsageError) << block;
  }
  for (const int depth : {0, -1, 5000}) {
    bad = good;
    bad.queue_depth = depth;
    EXPECT_THROW(ColdStore::open(bad), UsageError) << depth;
  }
  bad = good;
  bad.folders = {folder.file("not/there")};
  EXPECT_NE(error_of<InputError>([&] { ColdStore::open(bad); }).find("not/there"),
            std::string::npos);
}

TEST(ColdLayout, EveryByteHasOnePlaceAndFilesHaveNoSpareBlock) {
  for (const int64_t files : {1, 2, 3, 5}) {
    for (const int64_t bytes : {1, 4096, 8192, 12288, 40960, 40961, 81920}) {
      const ColdLayout layout{bytes, 8192, files};
      std::set<std::pair<int, int64_t>> places;
      std::vector<int64_t> ends(static_cast<size_t>(files), 0);
      for (int64_t address = 0; address < bytes; address += 4096) {
        const int file = layout.file(address);
        EXPECT_TRUE(places.emplace(file, layout.offset(address)).second);
        int64_t& end = ends[static_cast<size_t>(file)];
        end = std::max(end, layout.offset(address) + 4096);
      }
      for (int64_t i = 0; i < files; ++i) {
        EXPECT_EQ(layout.file_bytes(i), ends[static_cast<size_t>(i)]) << bytes << " in " << files;
      }
    }
  }
}

TEST(ColdProbe, MeasuresAndLeavesNothingBehind) {
  const TestFolder folder;
  const ColdProbe probe = probe_cold_folder(folder.path(), 2, 32 << 20);
  ASSERT_EQ(probe.rates.size(), 3u);
  bool found = false;
  for (const ColdRate& rate : probe.rates) {
    EXPECT_GT(rate.read, 0);
    EXPECT_GT(rate.write, 0);
    EXPECT_GT(rate.mixed_read, 0);
    EXPECT_GT(rate.mixed_write, 0);
    EXPECT_LE(0.97 * rate.total(), probe.best.total());
    found |= rate.block_bytes == probe.best.block_bytes &&
             rate.queue_depth == probe.best.queue_depth && rate.total() == probe.best.total();
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(posix_files().list(folder.path()).empty());
  EXPECT_THROW(probe_cold_folder(folder.path(), 2, 1 << 20), ResourceError);
}

}  // namespace
}  // namespace weft
