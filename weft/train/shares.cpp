#include "weft/train/shares.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "weft/base/check.h"
#include "weft/base/host_name.h"
#include "weft/base/json.h"
#include "weft/base/log.h"
#include "weft/train/agree.h"
#include "weft/train/cores.h"
#include "weft/train/host_room.h"

namespace weft {
namespace {

/// Of the free memory of a machine, what memory.host = auto may use together with the devices.
constexpr double kHostShare = 0.9;

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

/// Ranks that share a limit, what they need together and what it leaves.
struct Shared {
  int64_t ranks = 0;
  int64_t need = 0;
  HostRoom room;

  void add(const Json& rank, const char* which) {
    ++ranks;
    need += rank.at("need").as_int();
    const Json& own = rank.at(which);
    room.tighten({own.at("bytes").as_int(), own.at("limit").as_string()});
  }
};

Json room_json(const HostRoom& room) {
  return Json::object({{"bytes", room.bytes}, {"limit", room.limit}});
}

/// Throws when the plans of the ranks of one host, or of one process, need more than it may take.
/// `table` shows what one rank needs it for.
void check_hosts(const std::vector<Json>& ranks, const std::string& table) {
  std::map<std::string, Shared> shared;
  for (const Json& rank : ranks) {
    const std::string& host = rank.at("host").as_string();
    shared[host].add(rank, "machine");
    shared[fmt::format("{}, process {}", host, rank.at("process").as_int())].add(rank, "own");
  }
  for (const auto& [name, entry] : shared) {
    const int64_t room = entry.room.bytes;
    if (entry.need <= room) continue;
    const std::string who =
        ranks.size() == 1 ? "the plan needs"
                          : fmt::format("the plans of {} ranks on {} need", entry.ranks, name);
    throw ResourceError("memory",
                        fmt::format("{} {} bytes ({:.1f} GiB), this machine has {} free "
                                    "({:.1f} GiB, {}), {:.1f} GiB short; try a smaller "
                                    "train.micro_batch\n{}",
                                    who, entry.need, static_cast<double>(entry.need) / 0x1p30, room,
                                    static_cast<double>(room) / 0x1p30, entry.room.limit,
                                    static_cast<double>(entry.need - room) / 0x1p30, table));
  }
}

}  // namespace

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
  // The arena that plays the device is host memory too.
  const int64_t need = plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes +
                       plan.tiers[static_cast<size_t>(Tier::host)].peak_bytes;
  const std::string message = Json::object({{"host", host_name()},
                                            {"process", static_cast<int64_t>(::getpid())},
                                            {"need", need},
                                            {"machine", room_json(machine_room())},
                                            {"own", room_json(process_room())}})
                                  .dump();
  ask_first_rank(ranks, message, [&](const std::vector<std::string>& messages) {
    check_hosts(parse_all(messages), plan_text(plan));
    return std::string();
  });
}

std::optional<int64_t> agree_host_budget(const Config& config, Communicator& ranks) {
  const MemoryConfig& memory = config.memory;
  if (memory.host || !memory.device || memory.nvme.empty()) return memory.host;
  const std::string message =
      Json::object(
          {{"host", host_name()}, {"need", *memory.device}, {"machine", room_json(machine_room())}})
          .dump();
  const std::string answer =
      ask_first_rank(ranks, message, [](const std::vector<std::string>& messages) {
        std::map<std::string, Shared> hosts;
        for (const Json& rank : parse_all(messages)) {
          hosts[rank.at("host").as_string()].add(rank, "machine");
        }
        Json least;
        int64_t smallest = INT64_MAX;
        for (const auto& [name, host] : hosts) {
          const int64_t budget =
              static_cast<int64_t>(kHostShare * static_cast<double>(host.room.bytes)) - host.need;
          if (budget >= smallest) continue;
          smallest = budget;
          least = Json::object({{"budget", std::max<int64_t>(1, budget)},
                                {"room", host.room.bytes},
                                {"limit", host.room.limit}});
        }
        return least.dump();
      });
  const Json least = parse_json(answer, "memory.host");
  const int64_t budget = least.at("budget").as_int();
  if (ranks.rank() == 0) {
    log_info("memory.host = auto: {} bytes, {:.0f} % of {} bytes ({}) less what plays the devices",
             budget, 100 * kHostShare, least.at("room").as_int(), least.at("limit").as_string());
  }
  return budget;
}

}  // namespace weft
