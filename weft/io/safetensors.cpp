#include "weft/io/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

constexpr int64_t kLengthBytes = 8;

SafetensorsHeader read_header(File& file) {
  const std::string& where = file.path();
  const int64_t size = file.size();
  if (size < kLengthBytes) {
    throw InputError(where, fmt::format("got {} bytes, expected at least {}: not a safetensors "
                                        "file, or cut short",
                                        size, kLengthBytes));
  }
  std::array<uint8_t, kLengthBytes> raw{};
  file.read_at(0, raw.data(), kLengthBytes);
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | raw[static_cast<size_t>(i)];
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw InputError(where, fmt::format("got a header of {} bytes, expected at most {}: not a "
                                        "safetensors file, or damaged",
                                        length, kMaxSafetensorsHeader));
  }
  const auto bytes = static_cast<int64_t>(length);
  if (kLengthBytes + bytes > size) {
    throw InputError(where, fmt::format("got {} bytes, expected a header of {} bytes first; the "
                                        "file was cut short",
                                        size, bytes));
  }
  // The first byte tells most files of another kind before their "header" is read as a whole.
  std::string text(bytes > 0 ? 1 : 0, '\0');
  file.read_at(kLengthBytes, text.data(), static_cast<int64_t>(text.size()));
  if (text == "{") {
    text.resize(static_cast<size_t>(bytes));
    file.read_at(kLengthBytes, text.data(), bytes);
  }
  return parse_safetensors_header(text, kLengthBytes + bytes, size - kLengthBytes - bytes, where);
}

template <class Index>
int64_t find_index(const Index& index, std::string_view name) {
  const auto found = index.find(name);
  return found == index.end() ? -1 : static_cast<int64_t>(found->second);
}

std::string header_text(const std::vector<TensorEntry>& tensors, int64_t data_begin,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{\"__metadata__\":{";
  const char* comma = "";
  for (const auto& [key, value] : metadata) {
    text += fmt::format("{}{}:{}", comma, Json(key).dump(), Json(value).dump());
    comma = ",";
  }
  text += "}";
  for (const TensorEntry& entry : tensors) {
    std::string shape;
    for (const int64_t extent : entry.shape) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(extent);
    }
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        Json(entry.name).dump(), entry.dtype_name, shape, entry.offset - data_begin,
                        entry.offset - data_begin + entry.bytes);
  }
  text += "}";
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), 8)), ' ');
  return text;
}

}  // namespace

SafetensorsReader::SafetensorsReader(FileSystem& files, const std::string& path)
    : file_(files.open(path, OpenMode::read)), header_(read_header(file_)) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const TensorEntry* SafetensorsReader::find(std::string_view name) const {
  const int64_t i = find_index(index_, name);
  return i < 0 ? nullptr : &header_.tensors[static_cast<size_t>(i)];
}

const TensorEntry& SafetensorsReader::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw InputError(path(), fmt::format("tensor \"{}\" is missing", name));
  return *entry;
}

void SafetensorsReader::read(const TensorEntry& tensor, int64_t begin, void* data, int64_t bytes) {
  WEFT_CHECK(begin >= 0 && bytes >= 0 && begin + bytes <= tensor.bytes, "safetensors",
             "read of bytes {} to {} of \"{}\", which has {}", begin, begin + bytes, tensor.name,
             tensor.bytes);
  file_.read_at(tensor.offset + begin, data, bytes);
}

SafetensorsWriter::SafetensorsWriter(FileSystem& files, const std::string& path,
                                     std::vector<TensorInfo> tensors,
                                     std::map<std::string, std::string> metadata)
    : file_(files.open(path, OpenMode::create)) {
  metadata.try_emplace("format", "pt");
  sort_safetensors(tensors);
  int64_t at = 0;
  for (TensorInfo& info : tensors) {
    TensorEntry entry;
    entry.name = std::move(info.name);
    entry.dtype = info.dtype;
    entry.dtype_name = safetensors_dtype_name(info.dtype);
    entry.shape = std::move(info.shape);
    entry.offset = at;
    entry.bytes = num_elements(entry.shape) * dtype_size(entry.dtype);
    at += entry.bytes;
    tensors_.push_back(std::move(entry));
  }
  const std::string text = header_text(tensors_, 0, metadata);
  const auto length = static_cast<uint64_t>(text.size());
  WEFT_CHECK(length <= static_cast<uint64_t>(kMaxSafetensorsHeader), "safetensors",
             "header of {} has {} bytes", path, length);
  for (TensorEntry& entry : tensors_) entry.offset += kLengthBytes + static_cast<int64_t>(length);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    WEFT_CHECK(index_.emplace(tensors_[i].name, i).second, "safetensors", "\"{}\" given twice",
               tensors_[i].name);
  }
  written_.assign(tensors_.size(), 0);
  std::array<uint8_t, kLengthBytes> raw{};
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<uint8_t>(length >> (8 * i));
  file_.write_at(0, raw.data(), kLengthBytes);
  file_.write_at(kLengthBytes, text.data(), static_cast<int64_t>(length));
}

const TensorEntry& SafetensorsWriter::at(std::string_view name) const {
  const int64_t i = find_index(index_, name);
  WEFT_CHECK(i >= 0, "safetensors", "no tensor \"{}\" in {}", name, file_.path());
  return tensors_[static_cast<size_t>(i)];
}

void SafetensorsWriter::write(const TensorEntry& tensor, int64_t begin, const void* data,
                              int64_t bytes) {
  const auto i = static_cast<size_t>(find_index(index_, tensor.name));
  WEFT_CHECK(i < tensors_.size() && begin >= 0 && bytes >= 0 &&
                 written_[i] + bytes <= tensor.bytes && begin + bytes <= tensor.bytes,
             "safetensors", "bytes {} to {} of \"{}\", which has {}, {} of them written", begin,
             begin + bytes, tensor.name, tensor.bytes, i < written_.size() ? written_[i] : 0);
  file_.write_at(tensors_[i].offset + begin, data, bytes);
  written_[i] += bytes;
}

void SafetensorsWriter::write(std::string_view name, const void* data) {
  const TensorEntry& entry = at(name);
  write(entry, 0, data, entry.bytes);
}

void SafetensorsWriter::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    WEFT_CHECK(written_[i] == tensors_[i].bytes, "safetensors",
               "\"{}\" has {} of its {} bytes at the end", tensors_[i].name, written_[i],
               tensors_[i].bytes);
  }
  file_.sync();
  file_.close();
}

}  // namespace weft
