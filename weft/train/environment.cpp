// environment_json of report.h.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "weft/train/report.h"

namespace weft {
namespace {

/// The text after "name :" of the first such line; "" when there is none.
std::string proc_value(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return "";
}

std::string cpu_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  std::string name = "Linux";
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "PRETTY_NAME=\"";
    if (line.starts_with(kKey) && line.size() > kKey.size()) {
      name = line.substr(kKey.size(), line.size() - kKey.size() - 1);
    }
  }
  utsname kernel{};
  if (::uname(&kernel) == 0) name += fmt::format(", {} {}", kernel.sysname, kernel.release);
  return name;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

Json environment_json() {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  const int64_t bytes = pages * page;
  return Json::object({{"weft", WEFT_VERSION},
                       {"cpu", cpu_name()},
                       {"cores", int64_t{::sysconf(_SC_NPROCESSORS_ONLN)}},
                       {"memory", fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30)},
                       {"os", os_name()},
                       {"compiler", compiler_name()}});
}

}  // namespace weft
