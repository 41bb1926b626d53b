// Reads at offsets of many files through a bounded number of descriptors: files are opened on
// demand and the one unused for longest is closed first. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "weft/io/file.h"

namespace weft {

/// Random-access bytes with a name for messages.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;
  virtual int64_t size() const = 0;
  /// Reads exactly `bytes` bytes; throws InputError naming the source when they are not there.
  virtual void read(int64_t offset, void* data, int64_t bytes) const = 0;
};

class FilePool {
 public:
  /// At most `max_open` descriptors are held open (at least 1).
  explicit FilePool(int max_open = 64) : max_open_(max_open < 1 ? 1 : max_open) {}
  FilePool(const FilePool&) = delete;
  FilePool& operator=(const FilePool&) = delete;

  /// Reads exactly `bytes` bytes at `offset`. Throws InputError with the path when the file is
  /// gone, cannot be read or ends early.
  void read(const std::string& path, int64_t offset, void* data, int64_t bytes);
  int64_t size(const std::string& path);
  int num_open() const;

 private:
  using Entry = std::pair<std::string, File>;

  File& open(const std::string& path);

  int max_open_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_;  // most recent first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
};

/// A file as a ByteSource; its size is taken once.
class PooledFile : public ByteSource {
 public:
  PooledFile(std::string path, FilePool& pool)
      : path_(std::move(path)), pool_(pool), size_(pool.size(path_)) {}
  const std::string& name() const override { return path_; }
  int64_t size() const override { return size_; }
  void read(int64_t offset, void* data, int64_t bytes) const override {
    pool_.read(path_, offset, data, bytes);
  }

 private:
  std::string path_;
  FilePool& pool_;
  int64_t size_;
};

}  // namespace weft
