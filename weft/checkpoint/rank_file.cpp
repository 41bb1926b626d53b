#include "weft/checkpoint/rank_file.h"

#include <utility>

namespace weft {

RankFile::RankFile(FileSystem& files, std::string path, const std::vector<HeldPiece>& pieces)
    : files_(files), path_(std::move(path)), pieces_(pieces) {}

void RankFile::open() {
  // There already; a file system of several machines looks anew.
  files_.make_folders(parent_path(path_));
  std::vector<TensorInfo> infos;
  for (const HeldPiece& piece : pieces_) {
    for (const Box& box : piece.boxes) {
      infos.push_back({piece_name(piece.tensor, piece.shape, box), piece.dtype, box.extent});
    }
  }
  writer_.emplace(files_, path_, std::move(infos));
  const TensorEntry& last = writer_->tensors().back();
  report_.push(last.offset + last.bytes);
}

void RankFile::write(const HeldPiece& piece, StateBytes& source, bool finite) {
  const auto* data = static_cast<const char*>(source.bytes(piece.state, scratch_));
  if (finite) {
    require_finite(piece.tensor, data, piece.dtype, piece.bytes() / dtype_size(piece.dtype));
  }
  for (const Box& box : piece.boxes) {
    const TensorEntry& entry = writer_->at(piece_name(piece.tensor, piece.shape, box));
    writer_->write(entry, 0, data, entry.bytes);
    report_.push(entry.offset);
    report_.push(checksum_hex(data, entry.bytes));
    data += entry.bytes;
  }
}

bool RankFile::write_some(StateBytes& source, bool finite, int64_t bytes) {
  if (next_ == pieces_.size()) return true;
  if (!writer_) open();
  for (int64_t done = 0; done < bytes && next_ < pieces_.size(); ++next_) {
    write(pieces_[next_], source, finite);
    done += pieces_[next_].bytes();
  }
  if (next_ < pieces_.size()) return false;
  writer_->finish();
  return true;
}

}  // namespace weft
