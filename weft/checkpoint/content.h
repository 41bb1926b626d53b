// The open tensor files of a checkpoint, checked against its manifest.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "weft/checkpoint/checkpoint.h"
#include "weft/io/safetensors.h"

namespace weft {

class CheckpointContent {
 public:
  /// Opens every listed file. InputError names the file and, where there is one, the tensor that
  /// is missing, left over or not as the manifest says. `manifest` must outlive this.
  CheckpointContent(FileSystem& files, const std::string& folder, const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  std::string path_of(const Piece& piece) const { return join_path(folder_, piece.file); }
  /// Bytes [begin, begin + bytes) of a piece.
  void read(const Piece& piece, int64_t begin, void* data, int64_t bytes);
  /// All of a piece; InputError naming `tensor` and the file when the checksum differs.
  void read_checked(const LogicalTensor& tensor, const Piece& piece, void* data);
  /// The whole logical tensor, packed.
  void read_tensor(const LogicalTensor& tensor, void* data);

 private:
  void check_pieces();
  void check_sizes(FileSystem& files);

  std::string folder_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> readers_;
};

}  // namespace weft
