// The tensors of a Hugging Face model folder: model.safetensors, or model.safetensors.index.json
// and its shards. docs/formats/safetensors.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/io/safetensors.h"

namespace weft {

inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

/// Opens a folder, or a single *.safetensors file. Shards are the files named by the index's
/// weight_map and must lie in the folder itself. One thread at a time.
class HfTensors {
 public:
  struct Item {
    size_t file = 0;  // position in files()
    TensorEntry entry;
  };

  /// InputError when there are no weights, a shard or a mapped tensor is missing, or a file is
  /// damaged.
  HfTensors(FileSystem& files, const std::string& path);

  const std::vector<Item>& tensors() const { return items_; }
  const std::vector<std::unique_ptr<SafetensorsReader>>& files() const { return readers_; }
  const Item* find(std::string_view name) const;
  const std::string& file_of(const Item& item) const { return readers_[item.file]->path(); }
  void read(const Item& item, int64_t begin, void* data, int64_t bytes);

 private:
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> index_;
};

/// Writes the tensors of a model into an existing folder as one file, or as shards of at most
/// `shard_bytes` (a larger tensor gets a shard of its own) filled in the order given, and the
/// index. Tensors may be written in any order; order() is the one that writes sequentially.
class HfWriter {
 public:
  HfWriter(FileSystem& files, const std::string& folder, const std::vector<TensorInfo>& tensors,
           int64_t shard_bytes = kDefaultShardBytes);

  /// Names in the order of the bytes on disk, shard by shard.
  const std::vector<std::string>& order() const { return order_; }
  void write(std::string_view name, const void* data);
  /// Finishes all files and writes the index when there are several.
  void finish();

 private:
  FileSystem& files_;
  std::string folder_;
  std::vector<std::string> names_;  // file names
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::vector<std::pair<std::string, size_t>> map_;  // tensor -> writer, in the order given
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::string> order_;
  int64_t total_bytes_ = 0;
};

}  // namespace weft
