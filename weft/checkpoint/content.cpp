#include "weft/checkpoint/content.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {
constexpr int64_t kChunkBytes = int64_t{1} << 22;  // a multiple of every element size
}

CheckpointContent::CheckpointContent(FileSystem& files, const std::string& folder,
                                     const Manifest& manifest)
    : folder_(folder), manifest_(manifest) {
  for (const ManifestFile& file : manifest.files) {
    const std::string path = join_path(folder, file.name);
    if (!files.is_file(path)) {
      throw InputError(path,
                       "is missing, expected by the manifest; the checkpoint is not complete");
    }
    readers_[file.name] = std::make_unique<SafetensorsReader>(files, path);
  }
  check_pieces();
  check_sizes(files);
  if (!manifest.intact) {
    throw InputError(join_path(folder, kManifestName),
                     "got another checksum than its content has; the file was changed or damaged");
  }
}

void CheckpointContent::check_pieces() {
  std::set<std::pair<std::string_view, std::string_view>> known;
  for (const LogicalTensor& tensor : manifest_.tensors) {
    for (const Piece& piece : tensor.pieces) {
      const SafetensorsReader& reader = *readers_.at(piece.file);
      const TensorEntry* entry = reader.find(piece.tensor);
      if (entry == nullptr) {
        throw InputError(
            reader.path(),
            fmt::format("tensor \"{}\" is missing, expected by the manifest", piece.tensor));
      }
      known.emplace(piece.file, piece.tensor);
      if (entry->dtype != tensor.dtype || entry->bytes != piece.bytes) {
        throw InputError(reader.path(),
                         fmt::format("tensor \"{}\" has {} bytes of {}, expected {} of {} by the "
                                     "manifest",
                                     piece.tensor, entry->bytes, entry->dtype_name, piece.bytes,
                                     dtype_name(tensor.dtype)));
      }
    }
  }
  for (const auto& [name, reader] : readers_) {
    for (const TensorEntry& entry : reader->tensors()) {
      if (known.count({name, entry.name}) == 0) {
        throw InputError(reader->path(), fmt::format("tensor \"{}\" is left over: the manifest "
                                                     "does not list it",
                                                     entry.name));
      }
    }
  }
}

void CheckpointContent::check_sizes(FileSystem& files) {
  for (const ManifestFile& file : manifest_.files) {
    const std::string path = join_path(folder_, file.name);
    const int64_t bytes = files.open(path, OpenMode::read).size();
    if (bytes != file.bytes) {
      throw InputError(path,
                       fmt::format("got {} bytes, expected {} by the manifest", bytes, file.bytes));
    }
  }
  for (const LogicalTensor& tensor : manifest_.tensors) {
    for (const Piece& piece : tensor.pieces) {
      if (readers_.at(piece.file)->at(piece.tensor).offset != piece.offset) {
        throw InputError(path_of(piece),
                         fmt::format("tensor \"{}\" is not where the manifest says", piece.tensor));
      }
    }
  }
}

void CheckpointContent::read_piece(const LogicalTensor& tensor, const Piece& piece,
                                   const Take& take) {
  SafetensorsReader& reader = *readers_.at(piece.file);
  const TensorEntry& entry = reader.at(piece.tensor);
  const int64_t element = dtype_size(tensor.dtype);
  chunk_.resize(static_cast<size_t>(std::min(kChunkBytes, piece.bytes)));
  Checksum sum;
  for (int64_t at = 0; at < piece.bytes; at += kChunkBytes) {
    const int64_t bytes = std::min(kChunkBytes, piece.bytes - at);
    reader.read(entry, at, chunk_.data(), bytes);
    sum.add(chunk_.data(), bytes);
    take(at / element, bytes / element, chunk_.data());
  }
  if (const std::string checksum = sum.hex(); checksum != piece.checksum) {
    throw InputError(path_of(piece),
                     fmt::format("tensor \"{}\" has checksum {}, expected {}; the file is damaged, "
                                 "try an older checkpoint",
                                 tensor.name, checksum, piece.checksum));
  }
}

void CheckpointContent::read_tensor(const LogicalTensor& tensor, void* data) {
  const Box all{Shape(tensor.shape.size(), 0), tensor.shape};
  const int64_t element = dtype_size(tensor.dtype);
  for (const Piece& piece : tensor.pieces) {
    read_piece(tensor, piece, [&](int64_t begin, int64_t count, const void* chunk) {
      copy_range(piece.box, begin, count, chunk, all, data, element);
    });
  }
}

}  // namespace weft
