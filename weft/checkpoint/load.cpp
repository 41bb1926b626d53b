#include <fmt/core.h>

#include <set>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/content.h"
#include "weft/checkpoint/logical.h"

namespace weft {
namespace {

/// May values of `from` be loaded into a state of `to` without loss?
bool widens(DType from, DType to) {
  if (from == to) return true;
  if (!is_floating(from) || !is_floating(to)) return false;
  return dtype_size(to) > dtype_size(from);
}

/// Every wanted tensor is there and fits, and nothing is left over.
void check_tensors(const std::string& folder, const std::vector<LogicalGroup>& groups,
                   const Manifest& manifest, const LoadOptions& options) {
  const std::string where = join_path(folder, kManifestName);
  std::set<std::string_view> wanted;
  for (const LogicalGroup& group : groups) {
    wanted.insert(group.name);
    const LogicalTensor* tensor = manifest.find(group.name);
    if (tensor == nullptr) {
      throw InputError(where,
                       fmt::format("tensor \"{}\" is missing, expected {} {}; try the model "
                                   "and optimizer the checkpoint was made with",
                                   group.name, dtype_name(group.dtype), shape_text(group.shape)));
    }
    if (tensor->shape != group.shape) {
      throw InputError(where, fmt::format("tensor \"{}\" has shape {}, expected {}", group.name,
                                          shape_text(tensor->shape), shape_text(group.shape)));
    }
    const bool fits = options.weights_only ? is_floating(tensor->dtype) && is_floating(group.dtype)
                                           : widens(tensor->dtype, group.dtype);
    if (!fits) {
      throw InputError(where, fmt::format("tensor \"{}\" has dtype {}, expected {}", group.name,
                                          dtype_name(tensor->dtype), dtype_name(group.dtype)));
    }
  }
  for (const LogicalTensor& tensor : manifest.tensors) {
    const bool slot = is_slot_name(tensor.name);
    if (wanted.count(tensor.name) != 0 || (options.weights_only && slot)) continue;
    throw InputError(where, fmt::format("tensor \"{}\" is left over: this model and optimizer do "
                                        "not have it; try the configuration of the checkpoint, or "
                                        "its weights alone",
                                        tensor.name));
  }
}

class Loader {
 public:
  Loader(StateStore& states, CheckpointContent& content) : states_(states), content_(content) {}

  void load(const LogicalGroup& group, const LogicalTensor& tensor) {
    // One state that is the whole tensor, from one piece: read in place.
    if (group.parts.size() == 1 && tensor.pieces.size() == 1 && tensor.dtype == group.dtype) {
      piece_.resize(static_cast<size_t>(tensor.pieces[0].bytes));
      content_.read_checked(tensor, tensor.pieces[0], piece_.data());
      states_.write_state(group.parts[0].state, piece_.data());
      return;
    }
    const int64_t element = dtype_size(tensor.dtype);
    parts_.resize(group.parts.size());
    for (size_t i = 0; i < group.parts.size(); ++i) {
      parts_[i].resize(static_cast<size_t>(num_elements(group.parts[i].box.extent) * element));
    }
    for (const Piece& piece : tensor.pieces) {
      bool needed = false;
      for (const LogicalGroup::Part& part : group.parts) {
        needed = needed || overlap_elements(piece.box, part.box) > 0;
      }
      if (!needed) continue;
      piece_.resize(static_cast<size_t>(piece.bytes));
      content_.read_checked(tensor, piece, piece_.data());
      for (size_t i = 0; i < group.parts.size(); ++i) {
        copy_overlap(piece.box, piece_.data(), group.parts[i].box, parts_[i].data(), element);
      }
    }
    for (size_t i = 0; i < group.parts.size(); ++i) {
      write(group, group.parts[i], tensor.dtype, parts_[i]);
    }
  }

 private:
  void write(const LogicalGroup& group, const LogicalGroup::Part& part, DType from,
             std::vector<char>& data) {
    if (from != group.dtype) {
      const int64_t count = num_elements(part.box.extent);
      std::vector<char> converted(static_cast<size_t>(count * dtype_size(group.dtype)));
      convert_elements(data.data(), from, converted.data(), group.dtype, count);
      data.swap(converted);
    }
    states_.write_state(part.state, data.data());
  }

  StateStore& states_;
  CheckpointContent& content_;
  std::vector<char> piece_;
  std::vector<std::vector<char>> parts_;
};

}  // namespace

Manifest load_checkpoint(FileSystem& files, StateStore& states, const std::string& folder,
                         const LoadOptions& options) {
  Manifest manifest = read_manifest(files, folder);
  std::vector<LogicalGroup> groups = group_states(states.states());
  if (options.weights_only) {
    std::erase_if(groups, [](const LogicalGroup& group) { return group.slot; });
  }
  check_tensors(folder, groups, manifest, options);
  CheckpointContent content(files, folder, manifest);
  Loader loader(states, content);
  for (const LogicalGroup& group : groups) loader.load(group, *manifest.find(group.name));
  states.refresh_copies();
  return manifest;
}

VerifyReport verify_checkpoint(FileSystem& files, const std::string& folder) {
  constexpr int64_t kChunk = 1 << 22;
  const Manifest manifest = read_manifest(files, folder);
  VerifyReport report;
  try {
    CheckpointContent content(files, folder, manifest);
    std::vector<char> buffer(kChunk);
    for (const LogicalTensor& tensor : manifest.tensors) {
      ++report.tensors;
      for (const Piece& piece : tensor.pieces) {
        Checksum sum;
        for (int64_t at = 0; at < piece.bytes; at += kChunk) {
          const int64_t count = std::min(kChunk, piece.bytes - at);
          content.read(piece, at, buffer.data(), count);
          sum.add(buffer.data(), count);
        }
        report.bytes += piece.bytes;
        if (sum.hex() != piece.checksum) {
          report.problems.push_back(fmt::format("[{}] tensor \"{}\" has checksum {}, expected {}",
                                                content.path_of(piece), tensor.name, sum.hex(),
                                                piece.checksum));
        }
      }
    }
  } catch (const InputError& error) {
    report.problems.push_back(error.what());
  }
  return report;
}

}  // namespace weft
