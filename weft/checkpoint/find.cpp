#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/content.h"

namespace weft {
namespace {

constexpr std::string_view kPrefix = "step-";

/// The step of a name "step-<digits>", or nothing.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

std::string find_problem(FileSystem& files, const std::string& folder, int64_t step) {
  try {
    const Manifest manifest = read_manifest(files, folder);
    CheckpointContent content(files, folder, manifest);
    if (manifest.train.step != step) {
      return fmt::format("{} is of step {}", join_path(folder, kManifestName), manifest.train.step);
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::vector<CheckpointEntry> list_checkpoints(FileSystem& files, const std::string& root) {
  std::vector<CheckpointEntry> entries;
  if (!files.is_folder(root)) return entries;
  for (const std::string& name : files.list(root)) {
    const auto step = step_of(name);
    const std::string path = join_path(root, name);
    if (!step || !files.is_folder(path)) continue;
    CheckpointEntry entry{path, *step, false, find_problem(files, path, *step)};
    entry.complete = entry.problem.empty();
    entries.push_back(std::move(entry));
  }
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

NewestCheckpoint newest_checkpoint(FileSystem& files, const std::string& root) {
  NewestCheckpoint newest;
  const std::vector<CheckpointEntry> entries = list_checkpoints(files, root);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->complete) {
      newest.entry = *entry;
      break;
    }
    newest.skipped.push_back(*entry);
  }
  return newest;
}

std::string resolve_checkpoint(FileSystem& files, const std::string& path) {
  if (files.is_file(join_path(path, kManifestName))) return path;
  const std::string manifest = join_path(path, kManifestName);
  if (!files.is_folder(path)) {
    throw InputError(path, "got no folder, expected a checkpoint or a run; try checking the path");
  }
  if (step_of(file_name(path))) {
    throw InputError(manifest,
                     "is missing, expected in every checkpoint; the checkpoint is not "
                     "complete, try an older one");
  }
  const std::string inner = join_path(path, "checkpoints");
  const std::string root = files.is_folder(inner) ? inner : path;
  const NewestCheckpoint newest = newest_checkpoint(files, root);
  std::string skipped;
  for (const CheckpointEntry& entry : newest.skipped) {
    if (newest.entry) {
      log_warning("skipped {}: not complete: {}", entry.path, entry.problem);
    }
    skipped += fmt::format("; {} is not complete: {}", file_name(entry.path), entry.problem);
  }
  if (!newest.entry) {
    throw InputError(root, fmt::format("got no complete checkpoint, expected one{}", skipped));
  }
  return newest.entry->path;
}

Manifest read_manifest(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kManifestName);
  if (!files.is_file(path)) {
    throw InputError(path,
                     "is missing, expected in every checkpoint; is this a checkpoint, and a "
                     "complete one?");
  }
  return parse_manifest(files.read_text(path), path);
}

}  // namespace weft
