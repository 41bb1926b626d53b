// The file that one of several ranks writes into a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/checkpoint/ranks.h"
#include "weft/io/safetensors.h"

namespace weft {

/// Writes pieces in parts, so that the ranks can hear of each other in between. Without pieces
/// there is no file.
class RankFile {
 public:
  /// `pieces` must outlive this.
  RankFile(FileSystem& files, std::string path, const std::vector<HeldPiece>& pieces);

  /// Writes whole pieces until at least `bytes` are done. Returns whether all are written; the file
  /// is then synced and closed. With `finite`, throws AlarmError at the first value that is not.
  bool write_some(StateBytes& source, bool finite, int64_t bytes);
  /// Size of the file, then offset and checksum of every box; empty without a file.
  const Json& report() const { return report_; }

 private:
  void open();
  void write(const HeldPiece& piece, StateBytes& source, bool finite);

  FileSystem& files_;
  std::string path_;
  const std::vector<HeldPiece>& pieces_;
  size_t next_ = 0;
  std::optional<SafetensorsWriter> writer_;
  Json report_ = Json::array();
  std::vector<char> scratch_;
};

}  // namespace weft
