// FileDriver: the system calls of the file layer, as they are. Every call returns a value >= 0, or
// -errno; nothing is retried and nothing is thrown. FileSystem (file.h) is the checked layer above.
// Implementations: the operating system (posix_driver) and FaultyDriver (faulty.h) for tests.
// Calls may come from several threads at once; one handle is used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class OpenMode {
  read,    // must exist
  create,  // made empty, an old one is truncated; readable too
  update,  // must exist; readable and writable
};

enum class PathKind : int { absent = 0, file = 1, folder = 2 };

class FileDriver {
 public:
  virtual ~FileDriver() = default;

  /// Handle of an open file.
  virtual int64_t open(const std::string& path, OpenMode mode) = 0;
  virtual int64_t close(int64_t handle) = 0;
  /// Bytes done, which may be fewer than asked; 0 from read = end of file.
  virtual int64_t read(int64_t handle, void* data, int64_t bytes, int64_t offset) = 0;
  virtual int64_t write(int64_t handle, const void* data, int64_t bytes, int64_t offset) = 0;
  virtual int64_t sync(int64_t handle) = 0;
  virtual int64_t size(int64_t handle) = 0;

  virtual int64_t rename(const std::string& from, const std::string& to) = 0;
  /// Swaps two paths in one step; -EINVAL or -ENOSYS where the file system cannot.
  virtual int64_t exchange(const std::string& a, const std::string& b) = 0;
  /// Removes a file or an empty folder.
  virtual int64_t remove(const std::string& path) = 0;
  virtual int64_t make_folder(const std::string& path) = 0;
  virtual int64_t sync_folder(const std::string& path) = 0;
  /// Appends the entries of a folder, without "." and "..", in no order.
  virtual int64_t list(const std::string& path, std::vector<std::string>& names) = 0;
  /// A PathKind; links are followed.
  virtual int64_t kind(const std::string& path) = 0;
  /// Bytes an unprivileged process may still write on the file system of `path`.
  virtual int64_t free_bytes(const std::string& path) = 0;
};

/// The operating system. Lives for the whole process.
FileDriver& posix_driver();

}  // namespace weft
