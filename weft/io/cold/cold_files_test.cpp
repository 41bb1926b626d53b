// The files of the cold tier: owners, leftovers, full disks, file systems that can do less.
#include "weft/io/cold/cold_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <csignal>
#include <cstddef>
#include <fstream>

#include "weft/base/check.h"
#include "weft/io/cold/cold_test_util.h"
#include "weft/io/faulty.h"
#include "weft/io/file.h"

namespace weft {
namespace {

ColdOptions options_in(const std::string& folder, int64_t bytes, const std::string& run = "run") {
  ColdOptions options;
  options.folders = {folder};
  options.bytes = bytes;
  options.run = run;
  options.block_bytes = 16384;
  return options;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

/// Mounts an empty file system on `folder` that only this process sees; an errno, or 0.
int mount_here(const std::string& folder, const char* type, const char* data) {
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", user);
    std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", group);
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return errno;
  return ::mount(type, folder.c_str(), type, 0, data) == 0 ? 0 : errno;
}

TEST(ColdFiles, AreThereAtFullSizeWhileTheStoreLivesAndGoWithIt) {
  const TestFolder folder;
  ColdOptions options = options_in(folder.file("a"), 100000, "my run/7");
  options.folders.push_back(folder.file("b"));
  options.rank = 3;
  auto store = ColdStore::open(options);
  ASSERT_EQ(store->paths().size(), 2u);
  EXPECT_EQ(store->paths()[1], folder.file("b") + "/weft-cold.my_run_7.rank-3.stripe-1.bin");
  int64_t bytes = 0;
  for (const std::string& path : store->paths()) {
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_GE(status.st_blocks * 512, status.st_size) << "space is not reserved";
    bytes += status.st_size - 4096;
    const std::string text = posix_files().read_text(path);
    const std::string record = text.substr(text.size() - 4096);
    EXPECT_TRUE(has(record, fmt::format("\npid: {}\n", ::getpid()))) << record;
    EXPECT_TRUE(has(record, "\nrank: 3\n"));
  }
  EXPECT_EQ(bytes, store->file_bytes());
  EXPECT_EQ(bytes, round_up(100000, 4096));
  store.reset();
  EXPECT_TRUE(posix_files().list(folder.file("a")).empty());
  EXPECT_TRUE(posix_files().list(folder.file("b")).empty());
}

TEST(ColdFiles, WhatAKilledRunLeftIsRemovedByTheNext) {
  const TestFolder folder;
  const std::string killed = in_child(
      [&] {
        static std::unique_ptr<ColdStore> store = ColdStore::open(options_in(folder.path(), 50000));
        write_pattern(*store, 0, 50000, 1);
        return store->paths()[0];
      },
      [] { ::raise(SIGKILL); });
  ASSERT_TRUE(posix_files().is_file(killed)) << killed;
  const auto store = ColdStore::open(options_in(folder.path(), 50000, "another"));
  EXPECT_FALSE(posix_files().is_file(killed));
  EXPECT_TRUE(has(join(store->notes()), "removed 1 files that dead runs left"))
      << join(store->notes());
  // A run of the same name finds its own leftovers as well.
  in_child(
      [&] {
        static std::unique_ptr<ColdStore> child = ColdStore::open(options_in(folder.path(), 50000));
        return std::string();
      },
      [] { ::raise(SIGKILL); });
  ASSERT_TRUE(posix_files().is_file(killed));
  const auto again = ColdStore::open(options_in(folder.path(), 50000));
  write_pattern(*again, 0, 50000, 2);
  EXPECT_TRUE(holds_pattern(*again, 0, 50000, 2));
}

TEST(ColdFiles, AProcessThatEndsByExitLeavesNothing) {
  const TestFolder folder;
  const std::string path = in_child(
      [&] {
        static ColdStore* store = ColdStore::open(options_in(folder.path(), 50000)).release();
        return posix_files().is_file(store->paths()[0]) ? store->paths()[0] : "no file";
      },
      [] { std::exit(0); });
  EXPECT_TRUE(has(path, folder.path())) << path;
  EXPECT_TRUE(posix_files().list(folder.path()).empty());
}

TEST(ColdFiles, LiveRunsAreLeftAloneAndASecondOneOfTheSameNameIsRefused) {
  const TestFolder folder;
  const auto store = ColdStore::open(options_in(folder.path(), 50000));
  write_pattern(*store, 0, 50000, 1);
  const auto other = ColdStore::open(options_in(folder.path(), 50000, "other"));
  ColdOptions rank = options_in(folder.path(), 50000);
  rank.rank = 1;
  const auto sibling = ColdStore::open(rank);
  EXPECT_TRUE(other->notes().empty()) << join(other->notes());
  const std::string text = in_child([&] {
    return error_of<ResourceError>([&] { ColdStore::open(options_in(folder.path(), 50000)); });
  });
  EXPECT_TRUE(has(text, store->paths()[0])) << text;
  EXPECT_TRUE(has(text, fmt::format("process {} on host", ::getpid()))) << text;
  EXPECT_TRUE(has(text, "try another run name")) << text;
  EXPECT_TRUE(posix_files().is_file(store->paths()[0]));
  EXPECT_TRUE(holds_pattern(*store, 0, 50000, 1));
}

TEST(ColdFiles, OnlyFilesOfTheTierAreLeftovers) {
  const TestFolder folder;
  const std::string dead = folder.file("weft-cold.x.rank-0.stripe-0.bin");
  for (const char* name : {"weft-cold.txt", "other.bin", "model.safetensors"}) {
    posix_files().write_text(folder.file(name), "mine");
  }
  posix_files().write_text(dead, "half made");
  ASSERT_EQ(::symlink(folder.file("other.bin").c_str(),
                      folder.file("weft-cold.link.rank-0.stripe-0.bin").c_str()),
            0);
  EXPECT_EQ(remove_cold_leftovers(posix_driver(), folder.path()), std::vector<std::string>{dead});
  EXPECT_EQ(posix_files().list(folder.path()).size(), 4u);
}

TEST(ColdFiles, B17_RoomIsCheckedBeforeAnythingIsMade) {
  const TestFolder folder;
  FaultyDriver driver(posix_driver());
  ColdOptions options = options_in(folder.file("a"), 4 << 20);
  options.folders.push_back(folder.file("b"));  // of the same disk: the sum counts
  options.driver = &driver;
  driver.set_capacity(4 << 20);
  std::string text = error_of<ResourceError>([&] { ColdStore::open(options); });
  EXPECT_TRUE(has(text, "4194304") && has(text, fmt::format("{}", (4 << 20) + 2 * 4096))) << text;
  EXPECT_TRUE(has(text, folder.file("a"))) << text;
  EXPECT_TRUE(posix_files().list(folder.file("a")).empty());
  driver.set_capacity((4 << 20) + 2 * 4096);
  EXPECT_NO_THROW(ColdStore::open(options));
}

TEST(ColdFiles, B17_ATmpfsOf2MiBRefusesAStoreOf4MiB) {
  const TestFolder folder;
  const std::string text = in_child([&]() -> std::string {
    if (const int error = mount_here(folder.path(), "tmpfs", "size=2m"); error != 0) {
      return "skip: " + errno_text(error);
    }
    std::string result =
        error_of<ResourceError>([&] { ColdStore::open(options_in(folder.path(), 4 << 20)); });
    if (!posix_files().list(folder.path()).empty()) return "files stay behind";
    // What fits works there.
    const auto store = ColdStore::open(options_in(folder.path(), 1 << 20));
    write_pattern(*store, 0, 1 << 20, 1);
    return holds_pattern(*store, 0, 1 << 20, 1) ? result : "wrong bytes";
  });
  if (text.starts_with("skip")) GTEST_SKIP() << "no mount is permitted here: " << text;
  EXPECT_TRUE(has(text, folder.path())) << text;
  EXPECT_TRUE(has(text, "got 2097152 free bytes")) << text;
  EXPECT_TRUE(has(text, "expected at least 4198400")) << text;
}

TEST(ColdFiles, B17_ADiskThatFillsUpLaterStopsTheReservation) {
  const TestFolder folder;
  const std::string text = in_child([&]() -> std::string {
    if (const int error = mount_here(folder.path(), "tmpfs", "size=2m"); error != 0) {
      return "skip: " + errno_text(error);
    }
    // The check sees more room than there is, as when another process takes it at that moment.
    class Optimist : public FaultyDriver {
     public:
      using FaultyDriver::FaultyDriver;
      int64_t free_bytes(const std::string&) override { return ++calls == 1 ? 1 << 30 : 2 << 20; }
      int calls = 0;
    } driver(posix_driver());
    ColdOptions options = options_in(folder.path(), 4 << 20);
    options.driver = &driver;
    const std::string error = error_of<ResourceError>([&] { ColdStore::open(options); });
    return posix_files().list(folder.path()).empty() ? error : "files stay behind";
  });
  if (text.starts_with("skip")) GTEST_SKIP() << "no mount is permitted here: " << text;
  EXPECT_TRUE(has(text, "expected at least 4198400") && has(text, "got 2097152")) << text;
}

TEST(ColdFiles, B16_AFileSystemWithoutDirectIoOrReservationIsUsedWithANote) {
  const TestFolder folder;
  const std::string text = in_child([&]() -> std::string {
    // ramfs can do neither.
    if (const int error = mount_here(folder.path(), "ramfs", nullptr); error != 0) {
      return "skip: " + errno_text(error);
    }
    ColdOptions options = options_in(folder.path(), 200000);
    class Roomy : public FaultyDriver {  // ramfs says that it has no room at all
     public:
      using FaultyDriver::FaultyDriver;
      int64_t free_bytes(const std::string&) override { return 1 << 30; }
    } driver(posix_driver());
    options.driver = &driver;
    const auto store = ColdStore::open(options);
    write_pattern(*store, 0, 100001, 1);
    write_pattern(*store, 102400, 7, 2);
    const bool right = holds_pattern(*store, 0, 100001, 1) && holds_pattern(*store, 102400, 7, 2);
    return right ? join(store->notes()) : "wrong bytes";
  });
  if (text.starts_with("skip")) GTEST_SKIP() << "no mount is permitted here: " << text;
  EXPECT_TRUE(has(text, "no direct I/O")) << text;
  EXPECT_TRUE(has(text, "cannot reserve space")) << text;
}

TEST(ColdFiles, WithoutIoUringThreadsDoTheTransfers) {
  const TestFolder folder;
  const std::string text = in_child([&]() -> std::string {
    // What container runtimes do: io_uring_setup gives EPERM.
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      return "skip: " + errno_text(errno);
    }
    ColdOptions options = options_in(folder.path(), 200000);
    options.engine = ColdEngine::uring;
    if (error_of<ResourceError>([&] { ColdStore::open(options); }).empty()) return "no refusal";
    options.engine = ColdEngine::automatic;
    const auto store = ColdStore::open(options);
    write_pattern(*store, 0, 100001, 1);
    return holds_pattern(*store, 0, 100001, 1) ? store->engine_name() + "\n" + join(store->notes())
                                               : "wrong bytes";
  });
  if (text.starts_with("skip")) GTEST_SKIP() << "no filter is permitted here: " << text;
  EXPECT_TRUE(has(text, "16 threads\n")) << text;
  EXPECT_TRUE(has(text, "no io_uring (")) << text;
  EXPECT_EQ(text.find("no io_uring"), text.rfind("no io_uring")) << "noted twice: " << text;
}

}  // namespace
}  // namespace weft
