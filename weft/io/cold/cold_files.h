// The files of one cold store: made at their full size, locked, and removed at the end.
// docs/formats/cold-tier.md.
//
// The lock (flock) says whether a file's run lives; the system drops it when a process ends in any
// way. The owner record in the last 4096 bytes of a file is for people and for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/io/cold/cold_options.h"

namespace weft {

struct ColdFile {
  std::string path;
  int handle = -1;    // for transfers
  int lock = -1;      // an open file of its own: io_uring keeps the other a little longer than the
                      // process lives
  int64_t bytes = 0;  // without the owner record
  bool direct = false;   // transfers must be aligned
  int memory_align = 1;  // of addresses in memory; a power of two
};

class ColdFiles {
 public:
  /// Removes leftovers of dead runs, checks the free space of every disk, then makes the files.
  /// ResourceError when a disk has too little room or a file belongs to a live run; nothing stays
  /// behind then. Appends what people should know to `notes`.
  ColdFiles(const ColdOptions& options, const ColdLayout& layout, std::vector<std::string>& notes);
  /// Removes the files. They are also removed when the process ends by exit().
  ~ColdFiles();
  ColdFiles(const ColdFiles&) = delete;
  ColdFiles& operator=(const ColdFiles&) = delete;

  const std::vector<ColdFile>& files() const { return files_; }
  std::vector<int> handles() const;
  std::vector<std::string> paths() const;

 private:
  void make(const ColdOptions& options, const ColdLayout& layout, std::vector<std::string>& notes);
  void remove_all() noexcept;

  std::vector<ColdFile> files_;
};

/// Path of one file of a store; characters of `run` that are no letter, digit, '.', '_' or '-'
/// become '_'.
std::string cold_file_path(const std::string& folder, const std::string& run, int rank,
                           size_t stripe);
/// Removes files of runs that are dead and returns their paths. Files that are locked, unreadable
/// or, on a network file system, of another host are left alone.
std::vector<std::string> remove_cold_leftovers(FileDriver& driver, const std::string& folder);

}  // namespace weft
