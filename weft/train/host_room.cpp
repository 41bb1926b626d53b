#include "weft/train/host_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace weft {
namespace {

/// First number after `key` in a file of lines "key number ..."; 0 when unknown.
int64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  int64_t number = 0;
  std::string rest;
  while (file >> name >> number) {
    std::getline(file, rest);
    if (name == key) return number;
  }
  return 0;
}

/// The group of this process in version 2: the line "0::/a/b".
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

HostRoom one_group(const std::string& folder, const std::string& name) {
  int64_t limit = 0;
  int64_t used = 0;
  // "max" is no number.
  if (!(std::ifstream(folder + "/memory.max") >> limit)) return {};
  if (!(std::ifstream(folder + "/memory.current") >> used)) return {};
  used -= std::min(used, number_after(folder + "/memory.stat", "inactive_file"));
  return {std::max<int64_t>(0, limit - used), "control group " + name};
}

/// What is left of a limit of this process.
HostRoom limit_room(decltype(RLIMIT_AS) resource, int field, const char* name) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  // /proc/self/statm: total, resident, shared, text, unused, data; in pages.
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  for (int i = 0; i <= field; ++i) statm >> pages;
  const int64_t used = pages * ::sysconf(_SC_PAGESIZE);
  return {std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used), name};
}

}  // namespace

HostRoom control_group_room(const std::string& mount, const std::string& group) {
  HostRoom room;
  for (std::string name = group;;) {
    room.tighten(one_group(name == "/" ? mount : mount + name, name));
    if (name.empty() || name == "/") return room;
    name.resize(name.rfind('/') == std::string::npos ? 0 : name.rfind('/'));
    if (name.empty()) name = "/";
  }
}

HostRoom machine_room() {
  HostRoom room;
  const int64_t free = number_after("/proc/meminfo", "MemAvailable:") * 1024;
  if (free > 0) room = {free, "free memory"};
  room.tighten(control_group_room("/sys/fs/cgroup", own_group()));
  return room;
}

HostRoom process_room() {
  HostRoom room = limit_room(RLIMIT_AS, 0, "ulimit -v");
  room.tighten(limit_room(RLIMIT_DATA, 5, "ulimit -d"));
  return room;
}

}  // namespace weft
