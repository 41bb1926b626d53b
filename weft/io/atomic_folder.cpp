#include "weft/io/atomic_folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/log.h"

namespace weft {
namespace {
constexpr std::string_view kMark = ".tmp-";
}

AtomicFolder::AtomicFolder(FileSystem& files, std::string final_path)
    : files_(files),
      final_path_(join_path(parent_path(final_path), file_name(final_path))),
      path_(final_path_ + std::string(kMark) + std::to_string(::getpid())) {
  files_.make_folders(parent_path(final_path_));
  files_.remove_all(path_);
  files_.make_folders(path_);
}

AtomicFolder::~AtomicFolder() {
  if (done_) return;
  try {
    files_.remove_all(path_);
  } catch (const Error& error) {
    log_warning("{}: left over ({})", path_, error.what());
  }
}

void AtomicFolder::commit() {
  WEFT_CHECK(!done_, "atomic_folder", "{} is committed twice", final_path_);
  files_.sync_folder(path_);
  const bool replaces = files_.is_folder(final_path_);
  if (replaces) {
    files_.replace_folder(path_, final_path_);
  } else {
    files_.rename(path_, final_path_);
  }
  done_ = true;
  files_.sync_folder(parent_path(final_path_));
  // Only now that the new folder is durable may the one it replaced go.
  if (replaces) files_.remove_all(path_);
}

int64_t aside_process(const std::string& name) {
  const size_t at = name.rfind(kMark);
  if (at == std::string::npos) return 0;
  const char* begin = name.data() + at + kMark.size();
  const char* end = name.data() + name.size();
  int64_t process = 0;
  const auto [stop, error] = std::from_chars(begin, end, process);
  return error == std::errc() && stop == end && process > 0 ? process : 0;
}

std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& root) {
  std::vector<std::string> removed;
  if (!files.is_folder(root)) return removed;
  for (const std::string& name : files.list(root)) {
    const int64_t process = aside_process(name);
    if (process == 0 || process == ::getpid()) continue;
    if (::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH) continue;
    files.remove_all(join_path(root, name));
    removed.push_back(name);
  }
  return removed;
}

}  // namespace weft
