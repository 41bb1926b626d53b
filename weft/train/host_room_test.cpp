#include "weft/train/host_room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "weft/io/test_folder.h"

namespace weft {
namespace {

class ControlGroups : public testing::Test {
 protected:
  void group(const std::string& name, const std::string& limit, int64_t used,
             int64_t cached) const {
    const std::string folder = folder_.file("cgroup") + name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/memory.max") << limit << "\n";
    std::ofstream(folder + "/memory.current") << used << "\n";
    std::ofstream(folder + "/memory.stat") << "anon 7\ninactive_file " << cached << "\nslab 9\n";
  }
  HostRoom room(const std::string& name) const {
    return control_group_room(folder_.file("cgroup"), name);
  }
  const TestFolder folder_;
};

TEST_F(ControlGroups, TheTightestOfAGroupAndThoseAboveItCounts) {
  group("", "max", 900, 0);
  group("/a", "1000", 600, 100);
  group("/a/b", "400", 50, 0);
  EXPECT_EQ(room("/a/b").bytes, 350);
  EXPECT_EQ(room("/a/b").limit, "control group /a/b");
  EXPECT_EQ(room("/a").bytes, 500);
  group("/a", "1000", 900, 100);
  EXPECT_EQ(room("/a/b").bytes, 200);
  EXPECT_EQ(room("/a/b").limit, "control group /a");
}

TEST_F(ControlGroups, ALimitOfTheMountedGroupCounts) {
  group("", "800", 300, 0);
  EXPECT_EQ(room("/").bytes, 500);
  EXPECT_EQ(room("/not/there").bytes, 500);
}

TEST_F(ControlGroups, UsedUpIsNothingLeft) {
  group("/a", "1000", 1500, 0);
  EXPECT_EQ(room("/a").bytes, 0);
}

TEST_F(ControlGroups, WithoutLimitsNothingIsSaid) {
  EXPECT_EQ(room("/a").bytes, INT64_MAX);
  EXPECT_EQ(room("/a").limit, "");
}

TEST(HostRoom, TheMachineHasSomeAndSaysWhatLimitsIt) {
  const HostRoom room = machine_room();
  EXPECT_GT(room.bytes, 0);
  EXPECT_LT(room.bytes, INT64_MAX);
  EXPECT_NE(room.limit, "");
}

TEST(HostRoom, ALimitOfTheAddressSpaceIsSeen) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{rlim_t{1} << 40, rlim_t{1} << 40};
    ::setrlimit(RLIMIT_AS, &limit);
    const HostRoom room = process_room();
    const bool seen =
        room.limit == "ulimit -v" && room.bytes > 0 && room.bytes < (int64_t{1} << 40);
    ::_exit(seen ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace weft
