#include <fmt/core.h>

#include <map>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/content.h"
#include "weft/checkpoint/fill.h"
#include "weft/checkpoint/logical.h"

namespace weft {
namespace {

/// May values of `from` be loaded into a state of `to` without loss?
bool widens(DType from, DType to) {
  if (from == to) return true;
  if (!is_floating(from) || !is_floating(to)) return false;
  return dtype_size(to) > dtype_size(from);
}

/// Every tensor that some rank wants is there and fits, and nothing is left over.
void check_tensors(const std::string& where, const std::map<std::string, Shape>& wanted,
                   const Manifest& manifest, const LoadOptions& options) {
  for (const auto& [name, shape] : wanted) {
    const LogicalTensor* tensor = manifest.find(name);
    if (tensor == nullptr) {
      throw InputError(where,
                       fmt::format("tensor \"{}\" {} is missing; try the model and optimizer "
                                   "the checkpoint was made with",
                                   name, shape_text(shape)));
    }
    if (tensor->shape != shape) {
      throw InputError(where, fmt::format("tensor \"{}\" has shape {}, expected {}", name,
                                          shape_text(tensor->shape), shape_text(shape)));
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

void check_dtypes(const std::string& where, const std::vector<LogicalGroup>& groups,
                  const Manifest& manifest, const LoadOptions& options) {
  for (const LogicalGroup& group : groups) {
    const DType from = manifest.find(group.name)->dtype;
    const bool fits = options.weights_only ? is_floating(from) && is_floating(group.dtype)
                                           : widens(from, group.dtype);
    if (fits) continue;
    throw InputError(where, fmt::format("tensor \"{}\" has dtype {}, expected {}", group.name,
                                        dtype_name(from), dtype_name(group.dtype)));
  }
}

void load(StateStore& states, CheckpointContent& content, const LogicalGroup& group) {
  const LogicalTensor& tensor = *content.manifest().find(group.name);
  TensorFill fill(states, group, tensor.dtype);
  for (const Piece& piece : tensor.pieces) {
    if (!fill.needs(piece.box)) continue;
    content.read_piece(tensor, piece, [&](int64_t begin, int64_t count, const void* data) {
      fill.add(piece.box, begin, count, data);
    });
  }
  fill.write();
}

}  // namespace

Manifest load_checkpoint(FileSystem& files, StateStore& states, const std::string& folder,
                         const LoadOptions& options, Communicator* communicator) {
  const std::string where = join_path(folder, kManifestName);
  Manifest manifest;
  std::vector<LogicalGroup> groups;
  std::exception_ptr failure = failure_of([&] {
    manifest = read_manifest(files, folder);
    groups = group_loaded_states(states.states());
    if (options.weights_only) {
      std::erase_if(groups, [](const LogicalGroup& group) { return group.slot; });
    }
  });
  const std::map<std::string, Shape> wanted = all_tensors(communicator, failure, groups);
  failure = failure_of([&] {
    check_tensors(where, wanted, manifest, options);
    check_dtypes(where, groups, manifest, options);
    CheckpointContent content(files, folder, manifest);
    for (const LogicalGroup& group : groups) load(states, content, group);
    states.refresh_copies();
  });
  agree(communicator, failure);
  return manifest;
}

VerifyReport verify_checkpoint(FileSystem& files, const std::string& folder) {
  const Manifest manifest = read_manifest(files, folder);
  VerifyReport report;
  try {
    CheckpointContent content(files, folder, manifest);
    for (const LogicalTensor& tensor : manifest.tensors) {
      ++report.tensors;
      for (const Piece& piece : tensor.pieces) {
        try {
          content.read_piece(tensor, piece, [](int64_t, int64_t, const void*) {});
        } catch (const InputError& error) {
          report.problems.emplace_back(error.what());
        }
        report.bytes += piece.bytes;
      }
    }
  } catch (const InputError& error) {
    report.problems.emplace_back(error.what());
  }
  return report;
}

}  // namespace weft
