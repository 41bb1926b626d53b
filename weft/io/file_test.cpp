#include "weft/io/file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/io/atomic_folder.h"
#include "weft/io/faulty.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

/// The message of the error of type E that `call` throws.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Files : public ::testing::Test {
 protected:
  TestFolder folder_;
  FaultyDriver faulty_{posix_driver()};
  FileSystem files_{faulty_};
};

TEST_F(Files, WriteThenReadBack) {
  const std::string path = folder_.file("a");
  {
    File file = files_.open(path, OpenMode::create);
    file.write_at(0, "hello", 5);
    file.write_at(10, "world", 5);
    file.sync();
    file.close();
  }
  EXPECT_EQ(files_.read_text(path), std::string("hello\0\0\0\0\0world", 15));
  EXPECT_EQ(files_.kind(path), PathKind::file);
  EXPECT_EQ(files_.kind(folder_.file("b")), PathKind::absent);
}

TEST_F(Files, ShortCountsAndInterruptsAreRetried) {
  faulty_.add({.op = FileOp::write, .times = 3, .short_bytes = 1});
  faulty_.add({.op = FileOp::read, .times = 4, .short_bytes = 2});
  faulty_.add({.op = FileOp::write, .skip = 1, .times = 1, .error = EINTR});
  faulty_.add({.op = FileOp::sync, .times = 1, .error = EINTR});
  files_.write_text(folder_.file("a"), "0123456789");
  EXPECT_EQ(files_.read_text(folder_.file("a")), "0123456789");
}

TEST_F(Files, ReadPastTheEndIsAnInputError) {
  files_.write_text(folder_.file("a"), "0123");
  File file = files_.open(folder_.file("a"), OpenMode::read);
  char data[8];
  const std::string text = message_of<InputError>([&] { file.read_at(2, data, 4); });
  EXPECT_TRUE(contains(text, folder_.file("a"))) << text;
  EXPECT_TRUE(contains(text, "end of the file at byte 4")) << text;
}

TEST_F(Files, MissingFileAndFolderAsFile) {
  const std::string text =
      message_of<InputError>([&] { files_.open(folder_.file("none"), OpenMode::read); });
  EXPECT_TRUE(contains(text, folder_.file("none"))) << text;
  EXPECT_THROW(files_.read_text(folder_.path()), InputError);
  EXPECT_THROW(files_.list(folder_.file("none")), InputError);
}

TEST_F(Files, B18_FullDiskNamesPathNeededAndFree) {
  faulty_.set_capacity(4);
  const std::string text =
      message_of<ResourceError>([&] { files_.write_text(folder_.file("a"), "0123456789"); });
  EXPECT_TRUE(contains(text, folder_.file("a"))) << text;
  EXPECT_TRUE(contains(text, "needed 6 bytes, free 0 bytes")) << text;
}

TEST_F(Files, B18_WriteSyncAndCloseAreChecked) {
  for (const FileOp op : {FileOp::write, FileOp::sync, FileOp::close}) {
    faulty_.clear();
    faulty_.add({.op = op, .error = EIO});
    EXPECT_THROW(files_.write_text(folder_.file("a"), "x"), ResourceError);
  }
  faulty_.clear();
  faulty_.add({.op = FileOp::read, .error = EIO});
  files_.write_text(folder_.file("a"), "x");
  EXPECT_THROW(files_.read_text(folder_.file("a")), ResourceError);
}

TEST_F(Files, RemoveAllDoesNotFollowLinks) {
  files_.make_folders(folder_.file("keep/deep"));
  files_.write_text(folder_.file("keep/file"), "x");
  files_.make_folders(folder_.file("go/sub"));
  files_.write_text(folder_.file("go/sub/file"), "x");
  std::filesystem::create_directory_symlink(folder_.file("keep"), folder_.file("go/link"));
  files_.remove_all(folder_.file("go"));
  EXPECT_EQ(files_.kind(folder_.file("go")), PathKind::absent);
  EXPECT_TRUE(files_.is_file(folder_.file("keep/file")));
  EXPECT_NO_THROW(files_.remove_all(folder_.file("go")));
}

TEST_F(Files, CopyFileCopiesLargeFiles) {
  std::string text(3'000'001, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 3);
  files_.write_text(folder_.file("a"), text);
  files_.copy_file(folder_.file("a"), folder_.file("b"));
  EXPECT_EQ(files_.read_text(folder_.file("b")), text);
  EXPECT_THROW(files_.read_text(folder_.file("b"), 3'000'000), InputError);
}

TEST(Paths, JoinParentAndName) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(file_name("a/b/"), "b");
  EXPECT_EQ(file_name("b"), "b");
}

TEST_F(Files, AtomicFolderAppearsComplete) {
  {
    AtomicFolder aside(files_, folder_.file("root/final"));
    files_.write_text(join_path(aside.path(), "a"), "new");
    EXPECT_EQ(files_.kind(folder_.file("root/final")), PathKind::absent);
    aside.commit();
  }
  EXPECT_EQ(files_.read_text(folder_.file("root/final/a")), "new");
  EXPECT_EQ(files_.list(folder_.file("root")), std::vector<std::string>{"final"});
}

TEST_F(Files, AtomicFolderReplacesAndCleansUp) {
  for (const char* text : {"old", "new"}) {
    AtomicFolder aside(files_, folder_.file("final"));
    files_.write_text(join_path(aside.path(), text), text);
    aside.commit();
  }
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"final"});
  EXPECT_EQ(files_.list(folder_.file("final")), std::vector<std::string>{"new"});
}

TEST_F(Files, AtomicFolderWithoutExchangeStillReplaces) {
  for (const char* text : {"old", "new"}) {
    AtomicFolder aside(files_, folder_.file("final"));
    files_.write_text(join_path(aside.path(), text), text);
    faulty_.add(
        {.op = FileOp::rename, .times = text == std::string("new") ? 1 : 0, .error = EINVAL});
    aside.commit();
  }
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"final"});
  EXPECT_EQ(files_.list(folder_.file("final")), std::vector<std::string>{"new"});
}

TEST_F(Files, AtomicFolderLeavesNothingWithoutCommit) {
  {
    AtomicFolder aside(files_, folder_.file("final"));
    files_.write_text(join_path(aside.path(), "a"), "x");
    faulty_.add({.op = FileOp::sync_folder, .error = EIO});
    EXPECT_THROW(aside.commit(), ResourceError);
  }
  EXPECT_TRUE(files_.list(folder_.path()).empty());
}

TEST_F(Files, AtomicFolderSyncsBeforeAndAfterTheRename) {
  AtomicFolder aside(files_, folder_.file("final"));
  aside.commit();
  const std::vector<std::string> log = faulty_.log();
  const std::string name = file_name(aside.path());
  ASSERT_GE(log.size(), 3u);
  EXPECT_EQ(log[log.size() - 3], "sync_folder " + name);
  EXPECT_EQ(log[log.size() - 2], "rename " + name);
  EXPECT_EQ(log[log.size() - 1], "sync_folder " + file_name(folder_.path()));
}

TEST_F(Files, LeftoversOfDeadProcessesAreRemoved) {
  EXPECT_EQ(aside_process("step-00000001.tmp-123"), 123);
  EXPECT_EQ(aside_process("step-00000001"), 0);
  EXPECT_EQ(aside_process("step-00000001.tmp-12x"), 0);
  // The largest process id of Linux is 2^22, so this one is nobody's.
  files_.make_folders(folder_.file("a.tmp-999999999"));
  files_.make_folders(folder_.file("b.tmp-" + std::to_string(::getpid())));
  files_.make_folders(folder_.file("c.tmp-1"));
  EXPECT_EQ(remove_leftovers(files_, folder_.path()), std::vector<std::string>{"a.tmp-999999999"});
  EXPECT_EQ(files_.list(folder_.path()).size(), 2u);
}

}  // namespace
}  // namespace weft
