#include "weft/train/cold_setup.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "weft/base/json.h"
#include "weft/base/log.h"
#include "weft/comm/launch.h"
#include "weft/io/file.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class ColdSetupTest : public testing::Test {
 protected:
  ColdSetupTest() { set_log_level(LogLevel::error); }
  ~ColdSetupTest() override { set_log_level(LogLevel::info); }

  ColdOptions settle(const std::string& folder, int64_t bytes, const std::string& record) const {
    Config config;
    if (!folder.empty()) config.memory.nvme = {folder};
    Plan plan;
    plan.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes = bytes;
    ColdSetup setup{record, {}};
    setup.options.queue_depth = 7;
    const std::unique_ptr<Communicator> alone = make_fake_communicator(0, 1);
    return settle_cold(config, plan, setup, *alone);
  }
  void write_record(const std::string& folder, const std::string& text) const {
    posix_files().write_text(record_, "{\"folders\":[\"" + folder + "\"]," + text + "}");
  }

  const TestFolder files_;
  const std::string disk_ = files_.file("disk");
  const std::string record_ = files_.file("cold.json");
};

TEST_F(ColdSetupTest, WithoutFoldersThereIsNoTier) {
  EXPECT_TRUE(settle("", kMeasuredTier, record_).folders.empty());
}

TEST_F(ColdSetupTest, SmallTiersAreNotMeasured) {
  const ColdOptions options = settle(disk_, kMeasuredTier - 1, record_);
  EXPECT_EQ(options.folders, std::vector<std::string>{disk_});
  EXPECT_EQ(options.block_bytes, ColdOptions{}.block_bytes);
  EXPECT_EQ(options.queue_depth, 7);
  EXPECT_FALSE(posix_files().is_file(record_));
  EXPECT_EQ(settle(disk_, kMeasuredTier, "").queue_depth, 7) << "nowhere to keep the numbers";
}

TEST_F(ColdSetupTest, WhatWasMeasuredIsUsedAgain) {
  write_record(disk_, "\"block_bytes\":65536,\"queue_depth\":3");
  const ColdOptions options = settle(disk_, kMeasuredTier, record_);
  EXPECT_EQ(options.block_bytes, 65536);
  EXPECT_EQ(options.queue_depth, 3);
  EXPECT_FALSE(posix_files().is_folder(disk_)) << "was measured again";
}

TEST_F(ColdSetupTest, MeasuresOnceAndKeepsIt) {
  for (const std::string& record :
       {std::string(), std::string("{"), std::string("{\"folders\":[\"elsewhere\"]}")}) {
    if (!record.empty()) posix_files().write_text(record_, record);
    const ColdOptions options = settle(disk_, kMeasuredTier, record_);
    const Json kept = read_json_file(record_);
    EXPECT_EQ(kept.at("folders").as_array()[0].as_string(), disk_);
    EXPECT_EQ(kept.at("block_bytes").as_int(), options.block_bytes);
    EXPECT_EQ(kept.at("queue_depth").as_int(), options.queue_depth);
    EXPECT_GT(kept.at("mixed_read").as_double() + kept.at("mixed_write").as_double(), 0);
    EXPECT_TRUE(std::filesystem::is_empty(disk_)) << "files of the measurement";
  }
}

TEST_F(ColdSetupTest, AFolderThatCannotBeMeasuredGetsTheDefault) {
  const std::string nowhere = files_.file("a/b/c");
  EXPECT_EQ(settle(nowhere, kMeasuredTier, record_).queue_depth, 7);
  EXPECT_FALSE(posix_files().is_file(record_));
}

}  // namespace
}  // namespace weft
