#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "weft/io/file_driver.h"

namespace weft {
namespace {

int64_t result(int64_t value) { return value < 0 ? -int64_t{errno} : value; }

class PosixDriver : public FileDriver {
 public:
  int64_t open(const std::string& path, OpenMode mode) override {
    int flags = O_CLOEXEC;
    switch (mode) {
      case OpenMode::read: flags |= O_RDONLY; break;
      case OpenMode::create: flags |= O_RDWR | O_CREAT | O_TRUNC; break;
      case OpenMode::update: flags |= O_RDWR; break;
    }
    return result(::open(path.c_str(), flags, 0666));
  }
  int64_t close(int64_t handle) override { return result(::close(static_cast<int>(handle))); }
  int64_t read(int64_t handle, void* data, int64_t bytes, int64_t offset) override {
    return result(::pread(static_cast<int>(handle), data, static_cast<size_t>(bytes), offset));
  }
  int64_t write(int64_t handle, const void* data, int64_t bytes, int64_t offset) override {
    return result(::pwrite(static_cast<int>(handle), data, static_cast<size_t>(bytes), offset));
  }
  int64_t sync(int64_t handle) override { return result(::fsync(static_cast<int>(handle))); }
  int64_t size(int64_t handle) override {
    struct stat status {};
    if (::fstat(static_cast<int>(handle), &status) != 0) return -int64_t{errno};
    return S_ISDIR(status.st_mode) ? -int64_t{EISDIR} : int64_t{status.st_size};
  }
  int64_t rename(const std::string& from, const std::string& to) override {
    return result(::rename(from.c_str(), to.c_str()));
  }
  int64_t exchange(const std::string& a, const std::string& b) override {
    return result(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
  }
  int64_t remove(const std::string& path) override { return result(std::remove(path.c_str())); }
  int64_t make_folder(const std::string& path) override {
    return result(::mkdir(path.c_str(), 0777));
  }
  int64_t sync_folder(const std::string& path) override {
    const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return -int64_t{errno};
    const int64_t synced = result(::fsync(handle));
    ::close(handle);
    // Some file systems cannot sync folders and say so; there is nothing more to do there.
    return synced == -int64_t{EINVAL} ? 0 : synced;
  }
  int64_t list(const std::string& path, std::vector<std::string>& names) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return -int64_t{errno};
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int64_t error = errno;
    ::closedir(folder);
    return -error;
  }
  int64_t kind(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      return errno == ENOENT || errno == ENOTDIR ? 0 : -int64_t{errno};
    }
    return static_cast<int64_t>(S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::file);
  }
  int64_t free_bytes(const std::string& path) override {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) != 0) return -int64_t{errno};
    return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  }
};

}  // namespace

FileDriver& posix_driver() {
  static PosixDriver driver;
  return driver;
}

}  // namespace weft
