#include "weft/io/file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/error.h"

namespace weft {
namespace {

/// Repeats a call that a signal interrupted.
template <class Call>
int64_t again(Call&& call) {
  int64_t result = 0;
  do {
    result = call();
  } while (result == -int64_t{EINTR});
  return result;
}

bool is_full(int64_t error) { return error == -int64_t{ENOSPC} || error == -int64_t{EDQUOT}; }

[[noreturn]] void throw_write_error(FileDriver& driver, const std::string& path, int64_t error,
                                    std::string_view what, int64_t needed) {
  if (is_full(error)) {
    const int64_t free = driver.free_bytes(parent_path(path));
    throw ResourceError(
        path,
        fmt::format("cannot {}: the disk is full, needed {} bytes, free {} bytes; try freeing "
                    "space, another folder or keeping fewer checkpoints",
                    what, needed, std::max<int64_t>(free, 0)));
  }
  throw ResourceError(path, fmt::format("cannot {}: {}; try checking the disk and its permissions",
                                        what, errno_text(static_cast<int>(-error))));
}

}  // namespace

File::File(FileDriver& driver, int64_t handle, std::string path)
    : driver_(&driver), handle_(handle), path_(std::move(path)) {}

File::~File() {
  if (handle_ >= 0) driver_->close(handle_);
}

File::File(File&& other) noexcept
    : driver_(other.driver_),
      handle_(std::exchange(other.handle_, -1)),
      path_(std::move(other.path_)) {}

int64_t File::size() {
  const int64_t bytes = driver_->size(handle_);
  if (bytes == -int64_t{EISDIR}) throw InputError(path_, "got a folder, expected a file");
  if (bytes < 0) {
    throw ResourceError(
        path_, fmt::format("cannot tell the size: {}", errno_text(static_cast<int>(-bytes))));
  }
  return bytes;
}

void File::read_at(int64_t offset, void* data, int64_t bytes) {
  WEFT_CHECK(offset >= 0 && bytes >= 0, "file", "read of {} bytes at {}", bytes, offset);
  auto* to = static_cast<char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const int64_t count =
        again([&] { return driver_->read(handle_, to + done, bytes - done, offset + done); });
    if (count == -int64_t{EISDIR}) throw InputError(path_, "got a folder, expected a file");
    if (count < 0) {
      throw ResourceError(
          path_, fmt::format("cannot read {} bytes at {}: {}; try checking the disk", bytes, offset,
                             errno_text(static_cast<int>(-count))));
    }
    if (count == 0) {
      throw InputError(path_, fmt::format("got the end of the file at byte {}, expected {} bytes "
                                          "at {}; the file was cut short",
                                          offset + done, bytes, offset));
    }
    done += count;
  }
}

void File::write_at(int64_t offset, const void* data, int64_t bytes) {
  WEFT_CHECK(offset >= 0 && bytes >= 0, "file", "write of {} bytes at {}", bytes, offset);
  const auto* from = static_cast<const char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    int64_t count =
        again([&] { return driver_->write(handle_, from + done, bytes - done, offset + done); });
    if (count == 0) count = -int64_t{EIO};
    if (count < 0) throw_write_error(*driver_, path_, count, "write", bytes - done);
    done += count;
  }
}

void File::sync() {
  const int64_t result = again([&] { return driver_->sync(handle_); });
  if (result < 0) throw_write_error(*driver_, path_, result, "sync", 0);
}

void File::close() {
  WEFT_CHECK(handle_ >= 0, "file", "{} is closed twice", path_);
  // Not repeated on EINTR: the handle is gone in any case.
  const int64_t result = driver_->close(std::exchange(handle_, -1));
  if (result < 0) throw_write_error(*driver_, path_, result, "close", 0);
}

File FileSystem::open(const std::string& path, OpenMode mode) {
  const int64_t handle = again([&] { return driver_.open(path, mode); });
  if (handle >= 0) return File(driver_, handle, path);
  const std::string reason = errno_text(static_cast<int>(-handle));
  if (mode == OpenMode::read) {
    if (handle == -int64_t{EMFILE} || handle == -int64_t{ENFILE}) {
      throw ResourceError(path,
                          fmt::format("cannot be opened: {}; try a higher `ulimit -n`", reason));
    }
    throw InputError(path, fmt::format("cannot be opened: {}; try checking the path", reason));
  }
  throw_write_error(driver_, path, handle, "open for writing", 0);
}

void FileSystem::rename(const std::string& from, const std::string& to) {
  const int64_t result = driver_.rename(from, to);
  if (result < 0) {
    throw_write_error(driver_, from, result, fmt::format("rename to {}", to), 0);
  }
}

void FileSystem::replace_folder(const std::string& from, const std::string& to) {
  const int64_t result = driver_.exchange(from, to);
  if (result >= 0) return;
  if (result != -int64_t{EINVAL} && result != -int64_t{ENOSYS}) {
    throw_write_error(driver_, from, result, fmt::format("exchange with {}", to), 0);
  }
  const std::string old = from + ".old";
  rename(to, old);
  rename(from, to);
  rename(old, from);
}

void FileSystem::remove(const std::string& path) {
  const int64_t result = driver_.remove(path);
  if (result < 0) throw_write_error(driver_, path, result, "remove", 0);
}

void FileSystem::remove_all(const std::string& path) {
  const int64_t result = driver_.remove(path);
  if (result >= 0 || result == -int64_t{ENOENT}) return;
  if (result != -int64_t{ENOTEMPTY} && result != -int64_t{EEXIST}) {
    throw_write_error(driver_, path, result, "remove", 0);
  }
  for (const std::string& name : list(path)) remove_all(join_path(path, name));
  remove(path);
}

void FileSystem::make_folders(const std::string& path) {
  if (path.empty() || is_folder(path)) return;
  const std::string parent = parent_path(path);
  if (parent != path) make_folders(parent);
  const int64_t result = driver_.make_folder(path);
  if (result < 0 && !(result == -int64_t{EEXIST} && is_folder(path))) {
    throw_write_error(driver_, path, result, "make the folder", 0);
  }
}

void FileSystem::sync_folder(const std::string& path) {
  const int64_t result = again([&] { return driver_.sync_folder(path); });
  if (result < 0) throw_write_error(driver_, path, result, "sync", 0);
}

std::vector<std::string> FileSystem::list(const std::string& path) {
  std::vector<std::string> names;
  const int64_t result = driver_.list(path, names);
  if (result < 0) {
    throw InputError(path, fmt::format("cannot be listed: {}; try checking the path",
                                       errno_text(static_cast<int>(-result))));
  }
  std::sort(names.begin(), names.end());
  return names;
}

PathKind FileSystem::kind(const std::string& path) {
  const int64_t result = driver_.kind(path);
  if (result < 0) {
    throw InputError(path, fmt::format("cannot be read: {}; try checking the path",
                                       errno_text(static_cast<int>(-result))));
  }
  return static_cast<PathKind>(result);
}

int64_t FileSystem::free_bytes(const std::string& path) {
  const int64_t result = driver_.free_bytes(path);
  if (result < 0) {
    throw InputError(path, fmt::format("cannot be read: {}; try checking the path",
                                       errno_text(static_cast<int>(-result))));
  }
  return result;
}

std::string FileSystem::read_text(const std::string& path, int64_t limit) {
  File file = open(path, OpenMode::read);
  const int64_t bytes = file.size();
  if (bytes > limit) {
    throw InputError(path, fmt::format("got {} bytes, expected at most {}", bytes, limit));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, text.data(), bytes);
  return text;
}

void FileSystem::write_text(const std::string& path, std::string_view text) {
  File file = open(path, OpenMode::create);
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.sync();
  file.close();
}

void FileSystem::copy_file(const std::string& from, const std::string& to) {
  File source = open(from, OpenMode::read);
  File target = open(to, OpenMode::create);
  const int64_t bytes = source.size();
  std::vector<char> buffer(static_cast<size_t>(std::clamp<int64_t>(bytes, 1, 1 << 20)));
  for (int64_t at = 0; at < bytes;) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(buffer.size()), bytes - at);
    source.read_at(at, buffer.data(), count);
    target.write_at(at, buffer.data(), count);
    at += count;
  }
  target.sync();
  target.close();
}

FileSystem& posix_files() {
  static FileSystem files(posix_driver());
  return files;
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

namespace {
std::string without_slashes(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  return end == std::string::npos ? path.substr(0, 1) : path.substr(0, end + 1);
}
}  // namespace

std::string parent_path(const std::string& path) {
  const std::string clean = without_slashes(path);
  const size_t slash = clean.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : without_slashes(clean.substr(0, slash));
}

std::string file_name(const std::string& path) {
  const std::string clean = without_slashes(path);
  const size_t slash = clean.rfind('/');
  return slash == std::string::npos || clean == "/" ? clean : clean.substr(slash + 1);
}

}  // namespace weft
