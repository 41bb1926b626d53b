#include "weft/train/tensorboard.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "weft/io/test_folder.h"
#include "weft/train/crc32c.h"

namespace weft {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

/// The events of a file; checks the framing and its checksums.
std::vector<std::string> read_events(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  std::vector<std::string> events;
  for (size_t at = 0; at < all.size();) {
    uint64_t length = 0;
    EXPECT_LE(at + 12, all.size());
    std::memcpy(&length, all.data() + at, 8);
    EXPECT_LE(at + 16 + length, all.size());
    events.push_back(all.substr(at + 12, length));
    EXPECT_EQ(tensorboard_record(events.back()), all.substr(at, 16 + length));
    at += 16 + length;
  }
  return events;
}

TEST(Crc32c, KnownValues) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, InstructionAndTableAgreeAtEveryLength) {
  std::string text;
  for (int i = 0; i < 70; ++i) {
    EXPECT_EQ(crc32c(text), crc32c_table(text)) << i;
    text += static_cast<char>(i * 37 + 11);
  }
}

TEST(TensorBoard, GoldenVersionRecord) {
  EXPECT_EQ(hex(tensorboard_record(tensorboard_version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
}

TEST(TensorBoard, GoldenScalarRecord) {
  EXPECT_EQ(hex(tensorboard_record(tensorboard_scalar_event(1.0, 5, "loss", 2.5f))),
            "1a00000000000000129bd82d09000000000000f03f10052a0d0a0b0a046c6f737315000020401f0ddde3");
}

TEST(TensorBoard, RestartEventCarriesTheFirstStep) {
  // 09 wall time, 10 step, 3a session log { 08 status 01 START }.
  EXPECT_EQ(hex(tensorboard_restart_event(1.0, 300)), "09000000000000f03f10ac023a020801");
}

TEST(TensorBoard, FileHoldsVersionThenScalars) {
  const TestFolder folder;
  StepRecord record;
  record.step = 1;
  record.loss = 2.5;
  TensorBoardWriter writer(folder.file("tensorboard"), 1);
  writer.step(record);
  writer.eval({1, 2.0, 7.389, 10});
  const std::vector<std::string> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 1u + 11u + 2u);
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  const auto holds = [&](const std::string& tag, float value) {
    return std::any_of(events.begin(), events.end(), [&](const std::string& event) {
      return event.substr(9) == tensorboard_scalar_event(0, 1, tag, value).substr(9);
    });
  };
  EXPECT_TRUE(holds("train/loss", 2.5f));
  EXPECT_TRUE(holds("eval/loss", 2.0f));
  EXPECT_FALSE(holds("train/loss", 2.0f));
}

TEST(TensorBoard, B42_ResumeBeginsALaterFileWithARestartMark) {
  const TestFolder folder;
  const TensorBoardWriter first(folder.path(), 1);
  const TensorBoardWriter second(folder.path(), 6);
  EXPECT_LT(first.path(), second.path());
  EXPECT_EQ(read_events(first.path()).size(), 1u);
  const std::vector<std::string> events = read_events(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].substr(9), tensorboard_restart_event(0, 6).substr(9));
}

}  // namespace
}  // namespace weft
