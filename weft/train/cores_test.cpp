#include "weft/train/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "weft/comm/launch.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

using Hands = std::vector<std::vector<int>>;

/// A machine of nodes with their cores; two hardware threads per physical core, half a node apart.
class Machine {
 public:
  explicit Machine(const Hands& nodes) {
    for (size_t node = 0; node < nodes.size(); ++node) {
      std::string list;
      const Hands::value_type& cores = nodes[node];
      for (size_t i = 0; i < cores.size(); ++i) {
        if (i > 0) list += ',';
        list += std::to_string(cores[i]);
        const size_t half = cores.size() / 2;
        write("cpu/cpu" + std::to_string(cores[i]) + "/topology", "thread_siblings_list",
              std::to_string(cores[i % half]) + "," + std::to_string(cores[i % half + half]));
      }
      write("node/node" + std::to_string(node), "cpulist", list);
    }
    write("node", "online", "0-1");
  }
  std::string root() const { return folder_.file("sys"); }

 private:
  void write(const std::string& folder, const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(root() + "/" + folder);
    std::ofstream(root() + "/" + folder + "/" + name) << text << "\n";
  }
  const TestFolder folder_;
};

std::vector<int> first(int count) {
  std::vector<int> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

std::vector<int> numbers(const std::vector<CoreSite>& sites) {
  std::vector<int> cores;
  for (const CoreSite& site : sites) cores.push_back(site.core);
  return cores;
}

TEST(Cores, LieByNodeAndPhysicalCore) {
  const Machine machine({{0, 1, 4, 5}, {2, 3, 6, 7}});
  const auto sites = locate_cores(machine.root(), first(8));
  EXPECT_EQ(numbers(sites), (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(sites[3].node, 0);
  EXPECT_EQ(sites[3].physical, 1);
  EXPECT_EQ(sites[4].node, 1);
  // Only what was asked for, and a system that says nothing.
  EXPECT_EQ(numbers(locate_cores(machine.root(), {7, 1})), (std::vector<int>{1, 7}));
  EXPECT_EQ(numbers(locate_cores("/nowhere", {3, 2})), (std::vector<int>{2, 3}));
}

TEST(Cores, RangesOfTheKernelAreRead) {
  const TestFolder folder;
  std::filesystem::create_directories(folder.file("node/node0"));
  std::filesystem::create_directories(folder.file("node/node1"));
  std::ofstream(folder.file("node/node0/cpulist")) << "0-2,6\n";
  std::ofstream(folder.file("node/node1/cpulist")) << "3-5\n";
  EXPECT_EQ(numbers(locate_cores(folder.file(""), first(7))),
            (std::vector<int>{0, 1, 2, 6, 3, 4, 5}));
}

TEST(Cores, AreDealtWithinNodesWhereTheyHoldWholeRanks) {
  const Machine machine({{0, 1, 4, 5}, {2, 3, 6, 7}});
  const auto sites = locate_cores(machine.root(), first(8));
  EXPECT_EQ(deal_cores(sites, 2, 4), (Hands{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(deal_cores(sites, 4, 1), (Hands{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // Nodes that are no whole number of ranks: two ranks lie within one, the third on what is left.
  const Machine uneven({{0, 1, 2, 3}, {4, 5}});
  EXPECT_EQ(deal_cores(locate_cores(uneven.root(), first(6)), 2, 3), (Hands{{0, 2, 1}, {3, 4, 5}}));
  EXPECT_EQ(deal_cores(sites, 3, 2), (Hands{{0, 4}, {1, 5}, {2, 6}}));
}

TEST(Cores, TooFewAreNotDealt) {
  const auto sites = locate_cores("/nowhere", first(4));
  EXPECT_EQ(deal_cores(sites, 5, 1), Hands());
  EXPECT_EQ(deal_cores(sites, 2, 3), Hands());
  EXPECT_EQ(deal_cores(sites, 2, 2), (Hands{{0, 1}, {2, 3}}));
}

TEST(Cores, ABindingEndsWithItsObject) {
  const std::vector<int> before = usable_cores();
  {
    const CoreBinding binding({before.back()});
    EXPECT_EQ(usable_cores(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(usable_cores(), before);
  const CoreBinding none({});
  EXPECT_EQ(usable_cores(), before);
}

TEST(Cores, RanksThatShareCoresGetTheirOwn) {
  const std::vector<int> all = usable_cores();
  const auto world = static_cast<int>(all.size());
  if (world < 2) GTEST_SKIP() << "needs two cores";
  const Hands expected = deal_cores(locate_cores("/sys/devices/system", all), world, 1);
  run_ranks({.world = world}, [&](Communicator& ranks) {
    const auto own = agree_cores(1, ranks);
    EXPECT_EQ(own, expected[static_cast<size_t>(ranks.rank())]);
    EXPECT_EQ(agree_cores(2, ranks), std::vector<int>());
    // A launcher has bound them: each is alone where it is.
    const CoreBinding binding(own);
    EXPECT_EQ(agree_cores(1, ranks), std::vector<int>());
    return 0;
  });
}

}  // namespace
}  // namespace weft
