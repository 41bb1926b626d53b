#include "weft/io/cold/cold_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/io/file.h"

namespace weft {
namespace {

constexpr std::string_view kPrefix = "weft-cold.";
constexpr std::string_view kSuffix = ".bin";
constexpr int64_t kRecordBytes = kColdAlign;
/// A cleaner may take away a file between its creation and its lock.
constexpr int kTries = 20;

/// Names of the files of this process, for a process that ends by exit() with stores alive. Never
/// destroyed: stores may outlive other static objects.
class LivePaths {
 public:
  static LivePaths& get() {
    static LivePaths* paths = [] {
      auto* made = new LivePaths;
      std::atexit([] { get().unlink_all(); });
      return made;
    }();
    return *paths;
  }
  void add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.emplace(::getpid(), path);
  }
  void remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.erase({::getpid(), path});
  }

 private:
  void unlink_all() {
    const std::lock_guard lock(mutex_);
    for (const auto& [process, path] : paths_) {
      if (process == ::getpid()) ::unlink(path.c_str());  // not what a parent process owns
    }
  }
  std::mutex mutex_;
  std::set<std::pair<pid_t, std::string>> paths_;
};

/// Closes a handle unless it was given away.
class Handle {
 public:
  explicit Handle(int handle) : handle_(handle) {}
  ~Handle() {
    if (handle_ >= 0) ::close(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  int get() const { return handle_; }
  int give() { return std::exchange(handle_, -1); }

 private:
  int handle_;
};

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string make_record(const ColdOptions& options, size_t stripe) {
  std::string text = fmt::format(
      "\nweft cold tier, version 1\nrun: {}\nrank: {}\nstripe: {} of {}\nblock: {}\npid: {}\n"
      "host: {}\nstarted: {}\n",
      options.run.substr(0, 1024), options.rank, stripe, options.folders.size(),
      options.block_bytes, ::getpid(), host_name(), time_now());
  text.resize(static_cast<size_t>(kRecordBytes), '\0');
  return text;
}

/// The record of an open file, "" when there is none.
std::string read_record(int handle) {
  struct stat status {};
  if (::fstat(handle, &status) != 0 || status.st_size < kRecordBytes) return "";
  std::string text(static_cast<size_t>(kRecordBytes), '\0');
  const ssize_t count =
      ::pread(handle, text.data(), text.size(), static_cast<off_t>(status.st_size - kRecordBytes));
  if (count != kRecordBytes || text.find("weft cold tier") == std::string::npos) return "";
  return text.substr(0, text.find('\0'));
}

std::string record_value(const std::string& record, std::string_view key) {
  const std::string start = fmt::format("\n{}: ", key);
  const size_t at = record.find(start);
  if (at == std::string::npos) return "?";
  const size_t begin = at + start.size();
  return record.substr(begin, record.find('\n', begin) - begin);
}

bool is_network(int handle) {
  struct statfs status {};
  if (::fstatfs(handle, &status) != 0) return true;
  constexpr int64_t kCifs = 0xFF534D42, kSmb2 = 0xFE534D42, kLustre = 0x0BD00BD0,
                    kGpfs = 0x47504653, kCeph = 0x00C36400, kFuse = 0x65735546,
                    kBeegfs = 0x19830326;
  const auto type = static_cast<int64_t>(static_cast<uint32_t>(status.f_type));
  for (const int64_t network : {int64_t{NFS_SUPER_MAGIC}, kCifs, kSmb2, kLustre, kGpfs, kCeph,
                                kFuse, kBeegfs, int64_t{V9FS_MAGIC}, int64_t{AFS_SUPER_MAGIC}}) {
    if (type == network) return true;
  }
  return false;
}

/// Gives the space back at once: a name that is gone does so only when the last user is, and
/// io_uring may be one for a moment after a process ended.
void free_space(int handle) {
  // Without success the removal frees the space a little later.
  [[maybe_unused]] const int result = ::ftruncate(handle, 0);
}

/// The open file is still the one under `path`.
bool is_at(int handle, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(handle, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

[[noreturn]] void throw_full(FileDriver& driver, const std::string& where,
                             const std::string& folder, int64_t needed) {
  const int64_t free = driver.free_bytes(folder);
  throw ResourceError(where,
                      fmt::format("got {} free bytes for the cold tier, expected at least {}; try "
                                  "freeing space, another folder in memory.nvme or a smaller share "
                                  "on nvme",
                                  std::max<int64_t>(free, 0), needed));
}

[[noreturn]] void throw_errno(const std::string& path, std::string_view what, int error) {
  throw ResourceError(path, fmt::format("cannot {}: {}; try another folder in memory.nvme or its "
                                        "permissions",
                                        what, errno_text(error)));
}

[[noreturn]] void throw_taken(const std::string& path) {
  const Handle other(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string record = other.get() >= 0 ? read_record(other.get()) : "";
  throw ResourceError(
      path,
      fmt::format("got a file of run \"{}\", rank {}, process {} on host {} since {}, expected no "
                  "other run of this name; try another run name or folder, or ending that process",
                  record_value(record, "run"), record_value(record, "rank"),
                  record_value(record, "pid"), record_value(record, "host"),
                  record_value(record, "started")));
}

/// Makes and locks a new file.
int create_locked(const std::string& path, std::vector<std::string>& notes) {
  for (int i = 0; i < kTries; ++i) {
    Handle file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) {
      if (errno == EINTR) continue;
      if (errno == EEXIST) throw_taken(path);
      throw_errno(path, "make the file", errno);
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) continue;  // a cleaner is about to remove it
      notes.push_back(
          fmt::format("{}: the file system has no locks ({}), so files of dead runs "
                      "are not removed there",
                      path, errno_text(errno)));
    }
    if (is_at(file.get(), path)) return file.give();
  }
  throw ResourceError(path,
                      "cannot be made: other processes remove it again and again; try "
                      "another folder in memory.nvme");
}

void reserve(FileDriver& driver, ColdFile& file, std::vector<std::string>& notes) {
  const int64_t bytes = file.bytes + kRecordBytes;
  int result = 0;
  do {
    result = ::fallocate(file.handle, 0, 0, bytes) == 0 ? 0 : errno;
  } while (result == EINTR);
  if (result == 0) return;
  if (result == ENOSPC || result == EDQUOT || result == EFBIG) {
    throw_full(driver, file.path, parent_path(file.path), bytes);
  }
  if (result != EOPNOTSUPP && result != ENOSYS) throw_errno(file.path, "reserve space", result);
  if (::ftruncate(file.handle, bytes) != 0) throw_errno(file.path, "set the size", errno);
  notes.push_back(
      fmt::format("{}: the file system cannot reserve space, so a full disk is found "
                  "only when it is written",
                  file.path));
}

/// Switches the page cache off where the file system can do without.
void make_direct(ColdFile& file, std::vector<std::string>& notes) {
  const int flags = ::fcntl(file.handle, F_GETFL);
  int error = flags < 0 || ::fcntl(file.handle, F_SETFL, flags | O_DIRECT) != 0 ? errno : 0;
  file.memory_align = static_cast<int>(kColdAlign);
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (error == 0 && ::statx(file.handle, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    if (status.stx_dio_offset_align == 0 || status.stx_dio_offset_align > kColdAlign ||
        status.stx_dio_mem_align > kColdAlign) {
      error = EINVAL;
    } else {
      file.memory_align = static_cast<int>(status.stx_dio_mem_align);
    }
  }
#endif
  if (error == 0) {
    file.direct = true;
    return;
  }
  if (flags >= 0) ::fcntl(file.handle, F_SETFL, flags);
  file.memory_align = 1;
  notes.push_back(
      fmt::format("{}: the file system has no direct I/O ({}), so transfers go through "
                  "the page cache",
                  file.path, errno_text(error)));
}

/// Makes the folder when only its last part is missing: a longer path is more likely a disk that is
/// not mounted.
void need_folder(FileDriver& driver, const std::string& folder) {
  FileSystem files(driver);
  if (files.is_folder(folder)) return;
  if (!files.is_folder(parent_path(folder)) || driver.kind(folder) != 0) {
    throw InputError(folder,
                     "is no folder; try making it, mounting its disk or another folder in "
                     "memory.nvme");
  }
  files.make_folders(folder);
}

dev_t device_of(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) throw_errno(folder, "be read", errno);
  return status.st_dev;
}

}  // namespace

std::string cold_file_path(const std::string& folder, const std::string& run, int rank,
                           size_t stripe) {
  std::string name = run.substr(0, 128);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return join_path(folder,
                   fmt::format("{}{}.rank-{}.stripe-{}{}", kPrefix, name, rank, stripe, kSuffix));
}

std::vector<std::string> remove_cold_leftovers(FileDriver& driver, const std::string& folder) {
  std::vector<std::string> removed;
  for (const std::string& name : FileSystem(driver).list(folder)) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::string path = join_path(folder, name);
    const Handle file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file.get() < 0) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !is_at(file.get(), path)) continue;
    // Locks of other hosts may be invisible on a network file system.
    if (is_network(file.get()) && record_value(read_record(file.get()), "host") != host_name()) {
      continue;
    }
    free_space(file.get());
    if (driver.remove(path) >= 0) removed.push_back(path);
  }
  return removed;
}

ColdFiles::ColdFiles(const ColdOptions& options, const ColdLayout& layout,
                     std::vector<std::string>& notes) {
  try {
    make(options, layout, notes);
  } catch (...) {
    remove_all();
    throw;
  }
}

ColdFiles::~ColdFiles() { remove_all(); }

void ColdFiles::make(const ColdOptions& options, const ColdLayout& layout,
                     std::vector<std::string>& notes) {
  FileDriver& driver = *options.driver;
  std::map<dev_t, std::pair<std::string, int64_t>> disks;  // first folder, bytes needed
  for (size_t i = 0; i < options.folders.size(); ++i) {
    const std::string& folder = options.folders[i];
    need_folder(driver, folder);
    const std::vector<std::string> removed = remove_cold_leftovers(driver, folder);
    if (!removed.empty()) {
      notes.push_back(fmt::format("{}: removed {} files that dead runs left, {} the first", folder,
                                  removed.size(), file_name(removed[0])));
    }
    auto& [path, needed] = disks.try_emplace(device_of(folder), folder, 0).first->second;
    needed += layout.file_bytes(static_cast<int64_t>(i)) + kRecordBytes;
  }
  for (const auto& [device, disk] : disks) {
    const auto& [folder, needed] = disk;
    if (FileSystem(driver).free_bytes(folder) < needed) {
      throw_full(driver, folder, folder, needed);
    }
  }
  for (size_t i = 0; i < options.folders.size(); ++i) {
    const std::string path = cold_file_path(options.folders[i], options.run, options.rank, i);
    Handle lock(create_locked(path, notes));
    files_.push_back({path, -1, -1, layout.file_bytes(static_cast<int64_t>(i))});
    ColdFile& file = files_.back();
    LivePaths::get().add(path);
    file.lock = lock.give();
    file.handle = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file.handle < 0) throw_errno(path, "open the file", errno);
    reserve(driver, file, notes);
    const std::string record = make_record(options, i);
    if (::pwrite(file.handle, record.data(), record.size(), static_cast<off_t>(file.bytes)) !=
        kRecordBytes) {
      throw_errno(path, "write the owner record", errno);
    }
    if (options.direct) make_direct(file, notes);
  }
}

void ColdFiles::remove_all() noexcept {
  for (const ColdFile& file : files_) {
    free_space(file.lock);
    ::unlink(file.path.c_str());
    LivePaths::get().remove(file.path);
    ::close(file.lock);
    if (file.handle >= 0) ::close(file.handle);
  }
  files_.clear();
}

std::vector<int> ColdFiles::handles() const {
  std::vector<int> handles;
  for (const ColdFile& file : files_) handles.push_back(file.handle);
  return handles;
}

std::vector<std::string> ColdFiles::paths() const {
  std::vector<std::string> paths;
  for (const ColdFile& file : files_) paths.push_back(file.path);
  return paths;
}

}  // namespace weft
