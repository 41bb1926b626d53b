#include "weft/io/hf_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/log.h"

namespace weft {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// tensor -> file name, from the index; names that could leave the folder are refused.
std::vector<std::pair<std::string, std::string>> read_weight_map(FileSystem& files,
                                                                 const std::string& path) {
  const Json json = parse_json(files.read_text(path, kMaxSafetensorsHeader), path);
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object()) {
    throw InputError(path, "weight_map is missing, expected an object of tensor and file names");
  }
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string()) {
      throw InputError(path, fmt::format("weight_map of \"{}\" is no string", tensor));
    }
    const std::string& name = file.as_string();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw InputError(path, fmt::format("weight_map of \"{}\" names {}, expected a file of the "
                                         "same folder",
                                         tensor, Json(name).dump()));
    }
    result.emplace_back(tensor, name);
  }
  return result;
}

}  // namespace

HfTensors::HfTensors(FileSystem& files, const std::string& path) {
  const bool folder = files.is_folder(path);
  const std::string single = folder ? join_path(path, kSingle) : path;
  const std::string index = join_path(path, kIndex);
  if (!folder || files.is_file(single)) {
    readers_.push_back(std::make_unique<SafetensorsReader>(files, single));
    for (const TensorEntry& entry : readers_[0]->tensors()) items_.push_back({0, entry});
  } else if (files.is_file(index)) {
    std::map<std::string, size_t> opened;
    for (const auto& [tensor, name] : read_weight_map(files, index)) {
      const auto [found, is_new] = opened.emplace(name, readers_.size());
      if (is_new) {
        const std::string shard = join_path(path, name);
        if (!files.is_file(shard)) {
          throw InputError(shard, fmt::format("is missing, expected by {} for tensor \"{}\"; try "
                                              "downloading all shards",
                                              index, tensor));
        }
        readers_.push_back(std::make_unique<SafetensorsReader>(files, shard));
      }
      items_.push_back({found->second, readers_[found->second]->at(tensor)});
    }
  } else {
    throw InputError(path, fmt::format("got neither {} nor {}, expected the weights of a model",
                                       kSingle, kIndex));
  }
  for (size_t i = 0; i < items_.size(); ++i) index_[items_[i].entry.name] = i;
  for (const auto& reader : readers_) {
    for (const TensorEntry& entry : reader->tensors()) {
      if (index_.count(entry.name) == 0) {
        log_warning("{}: tensor \"{}\" is not in the index and is left out", reader->path(),
                    entry.name);
      }
    }
  }
}

const HfTensors::Item* HfTensors::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &items_[found->second];
}

void HfTensors::read(const Item& item, int64_t begin, void* data, int64_t bytes) {
  readers_[item.file]->read(item.entry, begin, data, bytes);
}

HfWriter::HfWriter(FileSystem& files, const std::string& folder,
                   const std::vector<TensorInfo>& tensors, int64_t shard_bytes)
    : files_(files), folder_(folder) {
  WEFT_CHECK(shard_bytes > 0, "hf_folder", "shard limit {}", shard_bytes);
  std::vector<std::vector<TensorInfo>> shards(1);
  int64_t in_shard = 0;
  for (const TensorInfo& info : tensors) {
    const int64_t bytes = num_elements(info.shape) * dtype_size(info.dtype);
    if (!shards.back().empty() && in_shard + bytes > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(info);
    in_shard += bytes;
    total_bytes_ += bytes;
    map_.emplace_back(info.name, shards.size() - 1);
    WEFT_CHECK(index_.emplace(info.name, shards.size() - 1).second, "hf_folder",
               "\"{}\" given twice", info.name);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    names_.push_back(shards.size() == 1
                         ? std::string(kSingle)
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    writers_.push_back(std::make_unique<SafetensorsWriter>(files, join_path(folder, names_.back()),
                                                           std::move(shards[i])));
    for (const TensorEntry& entry : writers_.back()->tensors()) order_.push_back(entry.name);
  }
}

void HfWriter::write(std::string_view name, const void* data) {
  const auto found = index_.find(std::string(name));
  WEFT_CHECK(found != index_.end(), "hf_folder", "no tensor \"{}\"", name);
  writers_[found->second]->write(name, data);
}

void HfWriter::finish() {
  for (const auto& writer : writers_) writer->finish();
  if (writers_.size() == 1) return;
  // Written by hand: Json::set searches, which is slow for the many names of a large model.
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_bytes_);
  const char* comma = "\n";
  for (const auto& [tensor, writer] : map_) {
    text += fmt::format("{}    {}: {}", comma, Json(tensor).dump(), Json(names_[writer]).dump());
    comma = ",\n";
  }
  text += "\n  }\n}\n";
  files_.write_text(join_path(folder_, kIndex), text);
}

}  // namespace weft
