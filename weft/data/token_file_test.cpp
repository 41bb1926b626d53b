#include "weft/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft-bin-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    prefix_ = folder_ + "/set";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(int64_t vocab, const std::vector<std::vector<int32_t>>& documents) const {
    TokenFileWriter writer(prefix_, vocab);
    for (const auto& document : documents) writer.add_document(document);
    writer.finish();
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  TokenFile open(int64_t vocab = 0) const {
    return TokenFile(prefix_, std::make_shared<FilePool>(), vocab);
  }
  std::string refusal(const std::function<void()>& work) const {
    try {
      work();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::vector<int32_t> all(const TokenFile& file) const {
    std::vector<int32_t> ids(static_cast<size_t>(file.num_tokens()));
    file.read(0, file.num_tokens(), ids.data());
    return ids;
  }

  std::string folder_, prefix_;
};

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST_F(TokenFileTest, IndexBytesAreThoseOfMegatron) {
  write(300, {{1, 2, 3}, {4, 299}});
  EXPECT_EQ(bytes_of(prefix_ + ".idx"),
            from_hex("4d4d4944494458000001000000000000000802000000000000000300000000000000"
                     "03000000020000000000000000000000060000000000000000000000000000000100000000"
                     "0000000200000000000000"));
  EXPECT_EQ(bytes_of(prefix_ + ".bin"), from_hex("01000200030004002b01"));
  const TokenFile file = open(300);
  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_EQ(file.num_tokens(), 5);
  EXPECT_EQ(file.dtype(), "u16");
  EXPECT_EQ(file.max_id(), 299);
  EXPECT_EQ(file.document(1), (std::vector<int32_t>{4, 299}));
}

TEST_F(TokenFileTest, B48_WidthFollowsTheVocabulary) {
  write(65536, {{65535, 0}});
  EXPECT_EQ(open(65536).dtype(), "u16");
  EXPECT_EQ(all(open(65536)), (std::vector<int32_t>{65535, 0}));
  write(65537, {{65536, 1}});
  EXPECT_EQ(open(65537).dtype(), "i32");
  EXPECT_EQ(all(open(65537)), (std::vector<int32_t>{65536, 1}));
  TokenFileWriter writer(prefix_, 10);
  EXPECT_THROW(writer.add_document(std::vector<int32_t>{10}), BugError);
}

TEST_F(TokenFileTest, B48_AnIdOutsideTheVocabularyNamesFileDocumentAndPosition) {
  std::vector<std::vector<int32_t>> documents(10, {1, 2, 3});
  documents[7] = {5, 6, 300, 7};
  write(1000, documents);
  const std::string message = refusal([&] { all(open(256)); });
  EXPECT_NE(message.find("set.bin"), std::string::npos) << message;
  EXPECT_NE(message.find("got id 300 in document 7 at position 2 (token 23 "), std::string::npos)
      << message;
  EXPECT_EQ(all(open(301)).size(), 31u);
}

TEST_F(TokenFileTest, NegativeIdsOfSignedFilesAreRefused) {
  write(100000, {{70000, 5}});
  std::string bin = bytes_of(prefix_ + ".bin");
  const int32_t negative = -1;
  std::memcpy(bin.data() + 4, &negative, 4);
  put(prefix_ + ".bin", bin);
  EXPECT_NE(refusal([&] { all(open()); }).find("got id -1 in document 0 at position 1"),
            std::string::npos);
}

TEST_F(TokenFileTest, OtherIntegerTypesAreRead) {
  write(300, {{1, 2}, {3}});
  std::string idx = bytes_of(prefix_ + ".idx");
  const auto retype = [&](int code, int64_t size) {
    idx[17] = static_cast<char>(code);
    const int64_t offset = 2 * size;
    std::memcpy(idx.data() + 34 + 8 + 8, &offset, 8);
    put(prefix_ + ".idx", idx);
  };
  retype(5, 8);
  put(prefix_ + ".bin", from_hex("010000000000000002000000000000000300000000000000"));
  EXPECT_EQ(all(open()), (std::vector<int32_t>{1, 2, 3}));
  put(prefix_ + ".bin", from_hex("010000000000000002000000010000000300000000000000"));
  EXPECT_NE(refusal([&] { all(open()); }).find("got id 4294967298"), std::string::npos);
  retype(1, 1);
  put(prefix_ + ".bin", from_hex("0102ff"));
  EXPECT_EQ(all(open()), (std::vector<int32_t>{1, 2, 255}));
  retype(2, 1);
  EXPECT_NE(refusal([&] { all(open()); }).find("got id -1"), std::string::npos);
  retype(7, 4);
  EXPECT_NE(refusal([&] { open(); }).find("token type f32"), std::string::npos);
  retype(9, 4);
  EXPECT_NE(refusal([&] { open(); }).find("token type unknown (code 9)"), std::string::npos);
}

TEST_F(TokenFileTest, EveryDamagedFieldIsRefused) {
  write(300, {{1, 2, 3}, {4, 5}});
  const std::string good = bytes_of(prefix_ + ".idx");
  const auto refused = [&](const std::string& bytes, const char* part) {
    put(prefix_ + ".idx", bytes);
    const std::string message = refusal([&] { open(); });
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    EXPECT_NE(message.find("set.idx"), std::string::npos) << message;
  };
  const auto with = [&](size_t at, int64_t value, size_t bytes) {
    std::string changed = good;
    std::memcpy(changed.data() + at, &value, bytes);
    return changed;
  };
  refused("", "got 0 bytes");
  refused(good.substr(0, 33), "got 33 bytes");
  refused(with(0, 0, 1), "expected \"MMIDIDX\"");
  refused(with(9, 2, 8), "index version 2");
  refused(with(18, -1, 8), "sequences");
  refused(with(18, 1, 8), "got 82 bytes, expected 70");
  refused(with(26, 0, 8), "no document starts");
  refused(good + "x", "got 83 bytes, expected 82");
  refused(good + "xx", "multimodal");
  refused(good.substr(0, 81), "got 81 bytes, expected 82");
  refused(with(34, -3, 4), "got length -3 of sequence 0");
  refused(with(34, 4, 4), "got offset 6 of sequence 1, expected 8");
  refused(with(42, 2, 8), "got offset 2 of sequence 0, expected 0");
  refused(with(58, 1, 8), "start 1 of document 0");
  refused(with(66, 9, 8), "start 9 of document 1");
  refused(with(66, -1, 8), "start -1 of document 1");
  refused(with(74, 1, 8), "start 1 of document 2");
  put(prefix_ + ".idx", good);
  put(prefix_ + ".bin", std::string(9, 'x'));
  EXPECT_NE(refusal([&] { open(); }).find("got 9 bytes, expected 10"), std::string::npos);
  std::filesystem::remove(prefix_ + ".bin");
  EXPECT_NE(refusal([&] { open(); }).find("set.bin"), std::string::npos);
}

TEST_F(TokenFileTest, EmptyDocumentsAndEmptyFiles) {
  write(300, {{}, {1}, {}});
  const TokenFile file = open();
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_TRUE(file.document(0).empty());
  EXPECT_EQ(file.document(1), (std::vector<int32_t>{1}));
  EXPECT_TRUE(file.document(2).empty());
  write(300, {});
  EXPECT_EQ(open().num_tokens(), 0);
  EXPECT_EQ(open().max_id(), -1);
}

TEST_F(TokenFileTest, AnUnfinishedWriterLeavesNothing) {
  {
    TokenFileWriter writer(prefix_, 300);
    writer.add_document(std::vector<int32_t>{1, 2});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TokenFileTest, LongFilesAreReadInPieces) {
  std::vector<int32_t> document(700001);
  std::iota(document.begin(), document.end(), 0);
  write(1000000, {document, document});
  const TokenFile file = open(1000000);
  std::vector<int32_t> ids(700001);
  file.read(350000, 700001, ids.data());
  EXPECT_EQ(ids[0], 350000);
  EXPECT_EQ(ids[350000], 700000);
  EXPECT_EQ(ids[350001], 0);
  EXPECT_EQ(ids[700000], 349999);
}

TEST_F(TokenFileTest, B85_ManyFilesUnderALowDescriptorLimit) {
  write(3000, {{1, 2}});
  const std::string index = bytes_of(prefix_ + ".idx");
  for (int i = 0; i < 2000; ++i) {
    const std::string name = folder_ + "/set " + std::to_string(i);
    const auto id = static_cast<uint16_t>(i);
    put(name + ".idx", index);
    std::string tokens(4, '\0');
    std::memcpy(tokens.data() + 2, &id, sizeof id);
    put(name + ".bin", tokens);
  }
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto pool = std::make_shared<FilePool>(1000);  // more than the limit gives
  std::vector<TokenFile> files;
  for (int32_t i = 0; i < 2000; ++i) {
    files.emplace_back(folder_ + "/set " + std::to_string(i), pool, 3000);
  }
  int64_t sum = 0;
  for (const TokenFile& file : files) sum += all(file)[1];
  EXPECT_EQ(sum, int64_t{1999} * 1000);
  EXPECT_LE(pool->num_open(), 256);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(TokenFileTest, B85_AFileThatShrinksOrVanishesIsNamed) {
  write(300, {std::vector<int32_t>(1000, 7)});
  const auto pool = std::make_shared<FilePool>(1);
  const TokenFile file(prefix_, pool, 300);
  std::filesystem::resize_file(prefix_ + ".bin", 100);
  EXPECT_NE(refusal([&] { all(file); }).find("set.bin"), std::string::npos);
  pool->size(prefix_ + ".idx");  // the only descriptor goes elsewhere
  std::filesystem::remove(prefix_ + ".bin");
  EXPECT_NE(refusal([&] { all(file); }).find("set.bin"), std::string::npos);
}

}  // namespace
}  // namespace weft
