#include "weft/io/faulty.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "weft/io/file.h"

namespace weft {
namespace {

std::string_view op_name(FileOp op) {
  switch (op) {
    case FileOp::open: return "open";
    case FileOp::close: return "close";
    case FileOp::read: return "read";
    case FileOp::write: return "write";
    case FileOp::sync: return "sync";
    case FileOp::rename: return "rename";
    case FileOp::remove: return "remove";
    case FileOp::make_folder: return "make_folder";
    case FileOp::sync_folder: return "sync_folder";
  }
  return "?";
}

}  // namespace

void FaultyDriver::add(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({std::move(fault)});
}

void FaultyDriver::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  capacity_ = -1;
}

void FaultyDriver::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void FaultyDriver::set_hook(std::function<void(FileOp, const std::string&)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

std::vector<std::string> FaultyDriver::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

int64_t FaultyDriver::check(FileOp op, const std::string& path, int64_t* limit) {
  std::function<void(FileOp, const std::string&)> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = hook_;
  }
  if (hook) hook(op, path);
  const std::lock_guard lock(mutex_);
  if (op != FileOp::read) log_.push_back(std::string(op_name(op)) + " " + file_name(path));
  for (Armed& armed : faults_) {
    const Fault& fault = armed.fault;
    if (fault.op != op || path.find(fault.path_part) == std::string::npos) continue;
    if (armed.seen++ < fault.skip) continue;
    if (fault.times >= 0 && armed.failed >= fault.times) continue;
    ++armed.failed;
    if (fault.error != 0) return -int64_t{fault.error};
    if (limit != nullptr) *limit = std::min(*limit, fault.short_bytes);
  }
  if (op == FileOp::write && capacity_ >= 0 && limit != nullptr) {
    if (capacity_ == 0) return -int64_t{ENOSPC};
    *limit = std::min(*limit, capacity_);
    capacity_ -= *limit;
  }
  return 0;
}

std::string FaultyDriver::path_of(int64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = paths_.find(handle);
  return found == paths_.end() ? std::string() : found->second;
}

int64_t FaultyDriver::open(const std::string& path, OpenMode mode) {
  if (const int64_t error = check(FileOp::open, path, nullptr); error < 0) return error;
  const int64_t handle = inner_.open(path, mode);
  if (handle >= 0) {
    const std::lock_guard lock(mutex_);
    paths_[handle] = path;
  }
  return handle;
}

int64_t FaultyDriver::close(int64_t handle) {
  const int64_t error = check(FileOp::close, path_of(handle), nullptr);
  {
    const std::lock_guard lock(mutex_);
    paths_.erase(handle);
  }
  // As in life, a failing close still gives the handle back.
  const int64_t result = inner_.close(handle);
  return error < 0 ? error : result;
}

int64_t FaultyDriver::read(int64_t handle, void* data, int64_t bytes, int64_t offset) {
  if (const int64_t error = check(FileOp::read, path_of(handle), &bytes); error < 0) return error;
  return inner_.read(handle, data, bytes, offset);
}

int64_t FaultyDriver::write(int64_t handle, const void* data, int64_t bytes, int64_t offset) {
  if (const int64_t error = check(FileOp::write, path_of(handle), &bytes); error < 0) return error;
  return inner_.write(handle, data, bytes, offset);
}

int64_t FaultyDriver::sync(int64_t handle) { return check(FileOp::sync, path_of(handle), nullptr); }

int64_t FaultyDriver::size(int64_t handle) { return inner_.size(handle); }

int64_t FaultyDriver::rename(const std::string& from, const std::string& to) {
  const int64_t error = check(FileOp::rename, from, nullptr);
  return error < 0 ? error : inner_.rename(from, to);
}

int64_t FaultyDriver::exchange(const std::string& a, const std::string& b) {
  const int64_t error = check(FileOp::rename, a, nullptr);
  return error < 0 ? error : inner_.exchange(a, b);
}

int64_t FaultyDriver::remove(const std::string& path) {
  const int64_t error = check(FileOp::remove, path, nullptr);
  return error < 0 ? error : inner_.remove(path);
}

int64_t FaultyDriver::make_folder(const std::string& path) {
  const int64_t error = check(FileOp::make_folder, path, nullptr);
  return error < 0 ? error : inner_.make_folder(path);
}

int64_t FaultyDriver::sync_folder(const std::string& path) {
  return check(FileOp::sync_folder, path, nullptr);
}

int64_t FaultyDriver::list(const std::string& path, std::vector<std::string>& names) {
  return inner_.list(path, names);
}

int64_t FaultyDriver::kind(const std::string& path) { return inner_.kind(path); }

int64_t FaultyDriver::free_bytes(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (capacity_ >= 0) return capacity_;
  }
  return inner_.free_bytes(path);
}

}  // namespace weft
