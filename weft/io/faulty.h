// A FileDriver that fails on purpose, for tests. It passes every call on to another driver unless
// a fault says otherwise.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/io/file_driver.h"

namespace weft {

enum class FileOp {
  open,
  close,
  read,
  write,
  sync,
  rename,  // and exchange
  remove,
  make_folder,
  sync_folder,
};

struct Fault {
  FileOp op = FileOp::write;
  std::string path_part;    // only paths that contain it; empty = all
  int64_t skip = 0;         // matching calls let through before the first failure
  int64_t times = -1;       // failures; -1 = for ever
  int error = 0;            // errno to give
  int64_t short_bytes = 0;  // error 0: do at most that many bytes (read and write)
};

/// Thread-safe. Syncs are noted and may fail, but are not passed on: no test loses power.
class FaultyDriver : public FileDriver {
 public:
  explicit FaultyDriver(FileDriver& inner) : inner_(inner) {}

  void add(Fault fault);
  void clear();
  /// Bytes that may still be written before every write gives ENOSPC; -1 = no limit.
  void set_capacity(int64_t bytes);
  /// Called before each operation, outside the lock: tests block or record here.
  void set_hook(std::function<void(FileOp, const std::string& path)> hook);
  /// Operations so far, "write model.safetensors" style, in order; reads are left out.
  std::vector<std::string> log() const;

  int64_t open(const std::string& path, OpenMode mode) override;
  int64_t close(int64_t handle) override;
  int64_t read(int64_t handle, void* data, int64_t bytes, int64_t offset) override;
  int64_t write(int64_t handle, const void* data, int64_t bytes, int64_t offset) override;
  int64_t sync(int64_t handle) override;
  int64_t size(int64_t handle) override;
  int64_t rename(const std::string& from, const std::string& to) override;
  int64_t exchange(const std::string& a, const std::string& b) override;
  int64_t remove(const std::string& path) override;
  int64_t make_folder(const std::string& path) override;
  int64_t sync_folder(const std::string& path) override;
  int64_t list(const std::string& path, std::vector<std::string>& names) override;
  int64_t kind(const std::string& path) override;
  int64_t free_bytes(const std::string& path) override;

 private:
  struct Armed {
    Fault fault;
    int64_t seen = 0;
    int64_t failed = 0;
  };
  /// -errno to give, 0 to go on; `limit` is lowered to a short count.
  int64_t check(FileOp op, const std::string& path, int64_t* limit);
  std::string path_of(int64_t handle) const;

  FileDriver& inner_;
  mutable std::mutex mutex_;
  std::vector<Armed> faults_;
  std::unordered_map<int64_t, std::string> paths_;
  std::function<void(FileOp, const std::string&)> hook_;
  std::vector<std::string> log_;
  int64_t capacity_ = -1;
};

}  // namespace weft
