// A folder that appears under its final name complete and durable, or not at all.
#pragma once

#include <string>

#include "weft/io/file.h"

namespace weft {

/// Write files into path(), sync each of them, then commit(). Until then they live in
/// "<final>.tmp-<pid>", which the destructor removes.
class AtomicFolder {
 public:
  /// Makes the folder aside, removing a leftover of the same name. `files` must outlive it.
  AtomicFolder(FileSystem& files, std::string final_path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& final_path() const { return final_path_; }
  /// Syncs the folder, moves it to its final name and syncs the parent. An existing folder of that
  /// name is swapped out in one step where the file system can, then removed.
  void commit();

 private:
  FileSystem& files_;
  std::string final_path_;
  std::string path_;
  bool done_ = false;
};

/// The process id in a name made by AtomicFolder ("….tmp-<pid>"), or 0 when `name` is none.
int64_t aside_process(const std::string& name);
/// Removes folders aside in `root` whose process is gone; returns their names.
std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& root);

}  // namespace weft
