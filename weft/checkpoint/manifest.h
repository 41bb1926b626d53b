// manifest.json of a checkpoint: what is in the folder and where. docs/formats/checkpoint.md.
// Plain data. Parsing checks everything that can be checked without the other files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/json.h"
#include "weft/base/shape.h"
#include "weft/checkpoint/box.h"

namespace weft {

inline constexpr const char* kManifestName = "manifest.json";

/// Where training stands; everything a resume needs beside the tensors.
struct TrainState {
  int64_t step = 0;  // steps done
  int64_t samples_consumed = 0;
  int64_t epoch = 0;
  int64_t tokens_total = 0;
  std::map<std::string, double> counters;
  Json scaler;  // loss scaler, null without one
};

/// What an export needs beside the tensors.
struct ModelInfo {
  Json hf_config;     // config.json of the model, without its dtype; null = unknown
  std::string dtype;  // default precision of an export: "f32", "bf16", "f16"
  std::map<std::string, std::string> tensor_dtypes;  // imported tensors that differ from it
  std::string source;  // imported folder, else that of the tokenizer, absolute; "" = none. An
                       // export copies the tokenizer's files from it
};

/// A box of a logical tensor, stored row-major as one tensor of a file.
struct Piece {
  std::string file;    // name within the checkpoint folder
  std::string tensor;  // name within the file
  int64_t offset = 0;  // from the start of the file
  int64_t bytes = 0;
  Box box;
  std::string checksum;  // XXH3-128 of the bytes, 32 hex digits
};

/// Pieces are disjoint and cover the tensor.
struct LogicalTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<Piece> pieces;
};

/// Is this the name of an optimizer slot ("<tensor>@m") and not of a weight?
inline bool is_slot_name(std::string_view name) { return name.find('@') != std::string_view::npos; }

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
};

struct Manifest {
  static constexpr int kVersion = 1;

  TrainState train;
  Json config;
  ModelInfo model;
  std::vector<ManifestFile> files;
  std::vector<LogicalTensor> tensors;  // sorted by name
  bool intact = true;                  // parsed text agrees with its own checksum

  const LogicalTensor* find(std::string_view name) const;
};

/// Text with its own checksum as the last member.
std::string manifest_text(const Manifest& manifest);
/// InputError naming `where` and the member or tensor at fault. A text that does not agree with its
/// checksum is parsed all the same, so that what is missing can be named; see Manifest::intact.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// XXH3-128 of a byte stream.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const void* data, int64_t bytes);
  /// 32 hex digits.
  std::string hex() const;

 private:
  void* state_;
};
std::string checksum_hex(const void* data, int64_t bytes);

}  // namespace weft
