// Files of any size, whatever the system does to single calls.
#include <gtest/gtest.h>

#include <cerrno>

#include "weft/base/error.h"
#include "weft/io/faulty.h"
#include "weft/io/safetensors.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

std::vector<uint8_t> pattern(int64_t bytes) {
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 131 + i / 256);
  return data;
}

/// Writes and reads back one tensor of `bytes` bytes; the reader checks nothing of the content.
std::vector<uint8_t> round_trip(FileSystem& files, const std::string& path, int64_t bytes) {
  const std::vector<uint8_t> data = pattern(bytes);
  SafetensorsWriter writer(files, path, {{"t", DType::u8, {bytes}}});
  writer.write("t", data.data());
  writer.finish();
  SafetensorsReader reader(files, path);
  std::vector<uint8_t> back(data.size());
  reader.read(reader.at("t"), back.data());
  return back;
}

constexpr int64_t kSizes[] = {1,    3,    7,    127,  129,  511,   512,   513,
                              4095, 4096, 4097, 8191, 8193, 65535, 100003};

TEST(FileSizes, B16_EverySizeAroundTheBlockSizesSurvives) {
  const TestFolder folder;
  FileSystem files(posix_driver());
  for (const int64_t bytes : kSizes) {
    EXPECT_TRUE(round_trip(files, folder.file("a"), bytes) == pattern(bytes)) << bytes;
  }
}

TEST(FileSizes, B16_ShortReadsAndWritesAreContinued) {
  const TestFolder folder;
  for (const int64_t piece : {1, 7, 512, 1000}) {
    FaultyDriver driver(posix_driver());
    driver.add({.op = FileOp::write, .short_bytes = piece});
    driver.add({.op = FileOp::read, .short_bytes = piece});
    FileSystem files(driver);
    for (const int64_t bytes : {1, 513, 4097}) {
      EXPECT_TRUE(round_trip(files, folder.file("a"), bytes) == pattern(bytes))
          << bytes << " in pieces of " << piece;
    }
  }
}

TEST(FileSizes, B17_EveryFailingCallIsAnErrorThatNamesThePath) {
  const TestFolder folder;
  const std::string path = folder.file("tensors");
  for (const int error : {ENOSPC, EIO}) {
    for (const FileOp op : {FileOp::open, FileOp::write, FileOp::sync, FileOp::close}) {
      for (int64_t call = 0;; ++call) {
        FaultyDriver driver(posix_driver());
        driver.add({.op = op, .skip = call, .times = 1, .error = error});
        FileSystem files(driver);
        bool written = false;
        try {
          SafetensorsWriter writer(files, path, {{"t", DType::u8, {5000}}});
          writer.write("t", pattern(5000).data());
          writer.finish();
          written = true;
        } catch (const ResourceError& failure) {
          EXPECT_NE(std::string(failure.what()).find(path), std::string::npos) << failure.what();
        }
        if (written) {
          EXPECT_GT(call, 0) << "a failing call " << static_cast<int>(op) << " went unnoticed";
          break;
        }
        ASSERT_LT(call, 20);
      }
    }
  }
}

TEST(FileSizes, B17_AReadErrorIsNotAWrongValue) {
  const TestFolder folder;
  FileSystem plain(posix_driver());
  round_trip(plain, folder.file("a"), 5000);
  FaultyDriver driver(posix_driver());
  FileSystem files(driver);
  SafetensorsReader reader(files, folder.file("a"));
  driver.add({.op = FileOp::read, .error = EIO});
  std::vector<uint8_t> back(5000);
  EXPECT_THROW(reader.read(reader.at("t"), back.data()), Error);
}

}  // namespace
}  // namespace weft
