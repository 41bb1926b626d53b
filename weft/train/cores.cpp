#include "weft/train/cores.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/json.h"
#include "weft/base/log.h"
#include "weft/train/agree.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Numbers of a list as the kernel writes it, "0-3,8,10-11"; empty when there is none.
std::vector<int> read_list(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  std::vector<int> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  const auto next_number = [&](int& number) {
    const auto [next, error] = std::from_chars(at, end, number);
    at = next;
    return error == std::errc();
  };
  for (int first = 0; at < end && next_number(first); ++at) {
    int last = first;
    if (at < end && *at == '-' && !next_number((++at, last))) break;
    for (int number = first; number <= std::min(last, CPU_SETSIZE - 1); ++number) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

/// Node of every core that a folder "node<number>" lists.
std::map<int, int> read_nodes(const std::string& root) {
  std::map<int, int> nodes;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root + "/node", ignored)) {
    const std::string name = entry.path().filename();
    int node = 0;
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ec != std::errc()) {
      continue;
    }
    for (const int core : read_list(entry.path().string() + "/cpulist")) nodes[core] = node;
  }
  return nodes;
}

}  // namespace

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  // Not known: all of them.
  const long online = cores.empty() ? std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)) : 0;
  for (int core = 0; core < online; ++core) cores.push_back(core);
  return cores;
}

std::vector<CoreSite> locate_cores(const std::string& root, const std::vector<int>& cores) {
  const std::map<int, int> nodes = read_nodes(root);
  std::vector<CoreSite> sites;
  for (const int core : cores) {
    const auto node = nodes.find(core);
    const std::vector<int> together =
        read_list(fmt::format("{}/cpu/cpu{}/topology/thread_siblings_list", root, core));
    sites.push_back(
        {core, node == nodes.end() ? 0 : node->second, together.empty() ? core : together.front()});
  }
  std::sort(sites.begin(), sites.end(), [](const CoreSite& a, const CoreSite& b) {
    return std::tie(a.node, a.physical, a.core) < std::tie(b.node, b.physical, b.core);
  });
  return sites;
}

std::vector<std::vector<int>> deal_cores(const std::vector<CoreSite>& sites, int ranks,
                                         int threads) {
  const size_t each = sites.size() / static_cast<size_t>(ranks);
  if (each == 0 || each < static_cast<size_t>(threads)) return {};
  std::vector<std::vector<int>> dealt;
  std::vector<int> rest;
  std::vector<int> hand;
  for (size_t i = 0; i < sites.size(); ++i) {
    hand.push_back(sites[i].core);
    const bool last_of_node = i + 1 == sites.size() || sites[i + 1].node != sites[i].node;
    if (hand.size() == each && dealt.size() < static_cast<size_t>(ranks)) {
      dealt.push_back(std::move(hand));
      hand.clear();
    } else if (last_of_node) {
      rest.insert(rest.end(), hand.begin(), hand.end());
      hand.clear();
    }
  }
  for (size_t at = 0; dealt.size() < static_cast<size_t>(ranks); at += each) {
    const auto begin = rest.begin() + static_cast<std::ptrdiff_t>(at);
    dealt.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return dealt;
}

CoreBinding::CoreBinding(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  bound_ = sched_getaffinity(0, sizeof(before_), &before_) == 0 &&
           sched_setaffinity(0, sizeof(set), &set) == 0;
  if (!bound_) log_info("not bound to cores {}: {}", fmt::join(cores, ","), errno_text(errno));
}

CoreBinding::~CoreBinding() {
  if (bound_) sched_setaffinity(0, sizeof(before_), &before_);
}

std::vector<int> agree_cores(int threads, Communicator& ranks) {
  if (ranks.world() == 1) return {};
  const std::vector<int> mine = usable_cores();
  const std::string message =
      Json::object({{"host", host_name()}, {"cores", Json(mine)}, {"threads", threads}}).dump();
  // Per rank {place among the ranks with the same cores, how many they are, the most threads}.
  const std::string answer =
      ask_first_rank(ranks, message, [](const std::vector<std::string>& messages) {
        struct Group {
          int ranks = 0;
          int64_t threads = 0;
        };
        std::map<std::string, Group> groups;
        std::vector<std::string> keys;
        std::vector<int> places;
        for (const std::string& text : messages) {
          const Json rank = parse_json(text, "cores");
          keys.push_back(rank.at("host").as_string() + rank.at("cores").dump());
          Group& group = groups[keys.back()];
          places.push_back(group.ranks++);
          group.threads = std::max(group.threads, rank.at("threads").as_int());
        }
        Json result = Json::array();
        for (size_t i = 0; i < keys.size(); ++i) {
          const Group& group = groups[keys[i]];
          result.push(Json(std::vector<int64_t>{places[i], group.ranks, group.threads}));
        }
        return result.dump();
      });
  const Json all = parse_json(answer, "cores");
  const Json::Array& place = all.as_array()[static_cast<size_t>(ranks.rank())].as_array();
  const auto sharing = static_cast<int>(place[1].as_int());
  if (sharing == 1) return {};
  const auto dealt = deal_cores(locate_cores("/sys/devices/system", mine), sharing,
                                static_cast<int>(place[2].as_int()));
  return dealt.empty() ? std::vector<int>() : dealt[static_cast<size_t>(place[0].as_int())];
}

}  // namespace weft
