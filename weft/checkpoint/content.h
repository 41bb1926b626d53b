// The open tensor files of a checkpoint, checked against its manifest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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
  /// Receives elements [begin, begin + count) of the flattening of the piece's box.
  using Take = std::function<void(int64_t begin, int64_t count, const void* data)>;
  /// All of a piece, in chunks of bounded size. InputError naming `tensor` and the file when the
  /// checksum, known after the last chunk, differs.
  void read_piece(const LogicalTensor& tensor, const Piece& piece, const Take& take);
  /// The whole logical tensor, packed.
  void read_tensor(const LogicalTensor& tensor, void* data);

 private:
  void check_pieces();
  void check_sizes(FileSystem& files);

  std::string folder_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> readers_;
  std::vector<char> chunk_;
};

}  // namespace weft
