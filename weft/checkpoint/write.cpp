#include "weft/checkpoint/write.h"

#include <fmt/core.h>

#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

void write_file(FileSystem& files, const std::string& folder, const std::string& name,
                const std::vector<const LogicalGroup*>& groups, StateBytes& source, bool finite,
                Manifest& manifest) {
  if (groups.empty()) return;
  std::map<std::string_view, const LogicalGroup*> by_name;
  std::vector<TensorInfo> infos;
  for (const LogicalGroup* group : groups) {
    by_name[group->name] = group;
    infos.push_back({group->name, group->dtype, group->shape});
  }
  const std::string path = join_path(folder, name);
  SafetensorsWriter writer(files, path, std::move(infos));
  Assembler assembler(source);
  for (const TensorEntry& entry : writer.tensors()) {
    const LogicalGroup& group = *by_name.at(entry.name);
    const void* data = assembler.assemble(group);
    if (finite) require_finite(group.name, data, group.dtype, group.elements());
    writer.write(entry, 0, data, entry.bytes);
    Piece piece;
    piece.file = name;
    piece.tensor = entry.name;
    piece.offset = entry.offset;
    piece.bytes = entry.bytes;
    piece.box = {Shape(group.shape.size(), 0), group.shape};
    piece.checksum = checksum_hex(data, entry.bytes);
    manifest.tensors.push_back({group.name, group.dtype, group.shape, {std::move(piece)}});
  }
  const TensorEntry& last = writer.tensors().back();
  manifest.files.push_back({name, last.offset + last.bytes});
  writer.finish();
}

}  // namespace

void require_space(FileSystem& files, const std::string& root, int64_t needed) {
  const int64_t free = files.free_bytes(root);
  if (free > 0 && needed > free) {
    throw ResourceError(root, fmt::format("cannot save a checkpoint: needed {} bytes, free {} "
                                          "bytes; try freeing space, another folder or keeping "
                                          "fewer checkpoints",
                                          needed, free));
  }
}

void write_checkpoint(FileSystem& files, const std::string& folder,
                      const std::vector<LogicalGroup>& groups, StateBytes& source,
                      const CheckpointMeta& meta, bool finite) {
  std::vector<const LogicalGroup*> weights;
  std::vector<const LogicalGroup*> slots;
  for (const LogicalGroup& group : groups) (group.slot ? slots : weights).push_back(&group);
  Manifest manifest;
  manifest.train = meta.train;
  manifest.config = meta.config;
  manifest.model = meta.model;
  write_file(files, folder, "model.safetensors", weights, source, finite, manifest);
  write_file(files, folder, "optimizer.safetensors", slots, source, finite, manifest);
  files.write_text(join_path(folder, kManifestName), manifest_text(manifest));
}

}  // namespace weft
