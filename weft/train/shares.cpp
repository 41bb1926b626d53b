#include "weft/train/shares.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <map>

#include "weft/base/check.h"
#include "weft/base/json.h"
#include "weft/train/agree.h"

namespace weft {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

/// First number after `key` in /proc/meminfo, in bytes; 0 when unknown.
int64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes) {
    std::getline(file, unit);
    if (name == key) return kilobytes * 1024;
  }
  return 0;
}

/// Room left under the memory limit of this control group; a huge number without one.
int64_t cgroup_room() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  int64_t limit = 0;
  int64_t used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return INT64_MAX;
  return std::max<int64_t>(0, limit - used);
}

/// Share of the least lucky rank: cores that several ranks of a host may use count in part.
int smallest_share(const std::vector<Json>& ranks) {
  std::map<std::string, std::map<int64_t, int>> users;  // host -> core -> ranks that may use it
  for (const Json& rank : ranks) {
    for (const Json& core : rank.at("cores").as_array()) {
      ++users[rank.at("host").as_string()][core.as_int()];
    }
  }
  double smallest = 1e9;
  for (const Json& rank : ranks) {
    double share = 0;
    for (const Json& core : rank.at("cores").as_array()) {
      share += 1.0 / users[rank.at("host").as_string()][core.as_int()];
    }
    smallest = std::min(smallest, share);
  }
  return std::max(1, static_cast<int>(smallest + 1e-6));
}

std::vector<Json> parse_all(const std::vector<std::string>& messages) {
  std::vector<Json> result;
  for (const std::string& message : messages) result.push_back(parse_json(message, "shares"));
  return result;
}

struct MemoryOfHost {
  int64_t ranks = 0;
  int64_t need = 0;
  int64_t room = INT64_MAX;
};

/// Throws when the plans of the ranks of one host need more than is free there. `table` shows what
/// one rank needs it for.
void check_hosts(const std::vector<Json>& ranks, const std::string& table) {
  std::map<std::string, MemoryOfHost> hosts;
  for (const Json& rank : ranks) {
    MemoryOfHost& host = hosts[rank.at("host").as_string()];
    ++host.ranks;
    host.need += rank.at("need").as_int();
    host.room = std::min(host.room, rank.at("room").as_int());
  }
  for (const auto& [name, host] : hosts) {
    if (host.need <= host.room) continue;
    const std::string who = ranks.size() == 1
                                ? "the plan needs"
                                : fmt::format("the plans of {} ranks on {} need", host.ranks, name);
    throw ResourceError(
        "memory", fmt::format("{} {} bytes ({:.1f} GiB), this machine has {} free "
                              "({:.1f} GiB), {:.1f} GiB short; try a smaller "
                              "train.micro_batch\n{}",
                              who, host.need, static_cast<double>(host.need) / 0x1p30, host.room,
                              static_cast<double>(host.room) / 0x1p30,
                              static_cast<double>(host.need - host.room) / 0x1p30, table));
  }
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

int agree_threads(const DeviceConfig& device, Communicator& ranks) {
  if (device.threads > 0) return static_cast<int>(device.threads);
  Json cores = Json::array();
  for (const int core : usable_cores()) cores.push(core);
  const std::string message =
      Json::object({{"host", host_name()}, {"cores", std::move(cores)}}).dump();
  return std::stoi(ask_first_rank(ranks, message, [](const std::vector<std::string>& messages) {
    return std::to_string(smallest_share(parse_all(messages)));
  }));
}

int planned_threads(const DeviceConfig& device, int world, const Launch& launch) {
  if (device.threads > 0) return static_cast<int>(device.threads);
  const int local = launch.kind == LaunchKind::mpi ? std::min(world, launch.local_size) : world;
  return std::max(1, static_cast<int>(usable_cores().size()) / local);
}

void require_memory(const Plan& plan, Communicator& ranks) {
  const int64_t available = meminfo_bytes("MemAvailable:");
  const int64_t room = available == 0 ? INT64_MAX : std::min(available, cgroup_room());
  // The arena that plays the device is host memory too.
  const int64_t need = plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes +
                       plan.tiers[static_cast<size_t>(Tier::host)].peak_bytes;
  const std::string message =
      Json::object({{"host", host_name()}, {"need", need}, {"room", room}}).dump();
  ask_first_rank(ranks, message, [&](const std::vector<std::string>& messages) {
    check_hosts(parse_all(messages), plan_text(plan));
    return std::string();
  });
}

}  // namespace weft
