// Checked files. Every call either does all it was asked or throws with the path in the message:
// InputError when a file to read is missing, unreadable or too short, ResourceError when the disk
// or the system refuses (with needed and free bytes when it is full). Short reads and writes and
// EINTR are retried. FileSystem is stateless and safe to share between threads; a File belongs to
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/file_driver.h"

namespace weft {

class File {
 public:
  /// Takes over an open `handle` of `driver`, which must outlive the file.
  File(FileDriver& driver, int64_t handle, std::string path);
  /// Closes without a check when close() was not called: only right for files that were read.
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::string& path() const { return path_; }
  int64_t size();
  /// Reads exactly `bytes` at `offset`.
  void read_at(int64_t offset, void* data, int64_t bytes);
  /// Writes exactly `bytes` at `offset`.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Returns when the data is on the disk.
  void sync();
  void close();

 private:
  FileDriver* driver_;
  int64_t handle_;
  std::string path_;
};

class FileSystem {
 public:
  explicit FileSystem(FileDriver& driver) : driver_(driver) {}

  File open(const std::string& path, OpenMode mode);
  void rename(const std::string& from, const std::string& to);
  /// Puts `from` in the place of `to` (both folders) and leaves the old one under `from`.
  void replace_folder(const std::string& from, const std::string& to);
  void remove(const std::string& path);
  /// Removes a folder and all it holds; an absent path is fine. Links are removed, not followed.
  void remove_all(const std::string& path);
  /// Makes the folder and its parents; existing ones are fine.
  void make_folders(const std::string& path);
  void sync_folder(const std::string& path);
  /// Sorted names of the entries of a folder.
  std::vector<std::string> list(const std::string& path);
  PathKind kind(const std::string& path);
  bool is_file(const std::string& path) { return kind(path) == PathKind::file; }
  bool is_folder(const std::string& path) { return kind(path) == PathKind::folder; }
  int64_t free_bytes(const std::string& path);

  /// Whole small file; more than `limit` bytes is an InputError.
  std::string read_text(const std::string& path, int64_t limit = int64_t{1} << 30);
  /// Writes, syncs and closes.
  void write_text(const std::string& path, std::string_view text);
  /// Copies, syncs and closes.
  void copy_file(const std::string& from, const std::string& to);

 private:
  FileDriver& driver_;
};

/// The file system of the machine.
FileSystem& posix_files();

/// "folder/name".
std::string join_path(const std::string& folder, const std::string& name);
/// "." for a bare name.
std::string parent_path(const std::string& path);
/// Last component, trailing slashes ignored.
std::string file_name(const std::string& path);

}  // namespace weft
