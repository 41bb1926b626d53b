#include "weft/data/file_pool.h"

#include "weft/base/error.h"

namespace weft {

File& FilePool::open(const std::string& path) {
  if (const auto found = by_path_.find(path); found != by_path_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }
  const auto close_oldest = [this] {
    by_path_.erase(recent_.back().first);
    recent_.pop_back();
  };
  if (recent_.size() >= static_cast<size_t>(max_open_)) close_oldest();
  for (;;) {
    try {
      recent_.emplace_front(path, posix_files().open(path, OpenMode::read));
      break;
    } catch (const ResourceError&) {
      // Most likely out of descriptors: give ours back before giving up.
      if (recent_.empty()) throw;
      close_oldest();
    }
  }
  by_path_[path] = recent_.begin();
  return recent_.front().second;
}

void FilePool::read(const std::string& path, int64_t offset, void* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  open(path).read_at(offset, data, bytes);
}

int64_t FilePool::size(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return open(path).size();
}

int FilePool::num_open() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(recent_.size());
}

}  // namespace weft
