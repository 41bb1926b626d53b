// safetensors files: reader with full validation, streaming writer. docs/formats/safetensors.md.
//
// A header is checked against the file size and a limit of 100 MB before anything is allocated.
// All faults of a file are InputErrors that name the file and, where there is one, the tensor.
// Readers and writers belong to one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"
#include "weft/io/file.h"

namespace weft {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

struct TensorEntry {
  std::string name;
  DType dtype = DType::none;  // none: a dtype of the format that weft does not compute with
  std::string dtype_name;     // as in the header: "F32", "F8_E4M3", …
  Shape shape;
  int64_t offset = 0;  // from the start of the file
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // by offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_begin = 0;                       // file offset of the byte buffer
};

/// Checks a header's JSON text against the size of the byte buffer that follows it: no unknown
/// dtype, no duplicate name, no gap, overlap or spare byte, bytes = shape x dtype. `where` is the
/// file in messages; offsets become file offsets by adding `data_begin`.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_begin,
                                           int64_t buffer_bytes, const std::string& where);

class SafetensorsReader {
 public:
  /// Opens and validates. `files` must outlive the reader.
  SafetensorsReader(FileSystem& files, const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorEntry* find(std::string_view name) const;
  /// InputError when there is no such tensor.
  const TensorEntry& at(std::string_view name) const;
  /// Reads bytes [begin, begin + bytes) of a tensor.
  void read(const TensorEntry& tensor, int64_t begin, void* data, int64_t bytes);
  void read(const TensorEntry& tensor, void* data) { read(tensor, 0, data, tensor.bytes); }

 private:
  File file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, size_t> index_;  // views into header_
};

/// A tensor to write.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// Writes one file: header first, then tensors in any order and in any pieces. The layout is that
/// of the reference writer: by dtype (largest of its list first), then by name.
class SafetensorsWriter {
 public:
  /// Creates `path` and writes the header. `metadata` gets "format": "pt" when it has no format.
  SafetensorsWriter(FileSystem& files, const std::string& path, std::vector<TensorInfo> tensors,
                    std::map<std::string, std::string> metadata = {});

  /// In the order of their bytes: writing in this order is sequential.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry& at(std::string_view name) const;
  /// Writes bytes [begin, begin + bytes) of a tensor; each byte must be written exactly once.
  void write(const TensorEntry& tensor, int64_t begin, const void* data, int64_t bytes);
  void write(std::string_view name, const void* data);
  /// Checks that every tensor was written, then syncs and closes.
  void finish();

 private:
  File file_;
  std::vector<TensorEntry> tensors_;
  std::vector<int64_t> written_;  // bytes per tensor
  std::unordered_map<std::string_view, size_t> index_;
};

/// The reference writer's sort: by position of the dtype in the format's list, descending, then by
/// name.
void sort_safetensors(std::vector<TensorInfo>& tensors);

}  // namespace weft
