#include "weft/data/data_files.h"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/io/file.h"

namespace weft {
namespace {

std::vector<std::string> glob_names(const std::string& pattern) {
  glob_t result{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &result);
  std::vector<std::string> names;
  for (size_t i = 0; code == 0 && i < result.gl_pathc; ++i) names.emplace_back(result.gl_pathv[i]);
  ::globfree(&result);
  std::sort(names.begin(), names.end());
  return names;
}

/// The data files among `paths`; a token file counts once, by its .idx.
std::vector<DataFile> data_files_of(const std::vector<std::string>& paths) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) {
    DataFile file;
    const bool is_tokens = path.ends_with(".bin") || path.ends_with(".idx");
    if (!identify_data_file(path, &file) || (is_tokens && path.ends_with(".bin"))) continue;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

std::string resolve_path(const std::string& base_folder, const std::string& path) {
  if (base_folder.empty() || path.starts_with('/')) return path;
  return join_path(base_folder, path);
}

bool identify_data_file(const std::string& path, DataFile* file) {
  FileSystem& files = posix_files();
  const auto set = [&](DataFileKind kind, const std::string& name) {
    *file = {kind, name};
    return true;
  };
  if (files.is_file(path)) {
    if (path.ends_with(".txt")) return set(DataFileKind::text, path);
    if (path.ends_with(".jsonl")) return set(DataFileKind::jsonl, path);
    if (path.ends_with(".bin") || path.ends_with(".idx")) {
      return set(DataFileKind::tokens, path.substr(0, path.size() - 4));
    }
  }
  return files.is_file(path + ".idx") ? set(DataFileKind::tokens, path) : false;
}

std::vector<DataFile> find_data_files(const std::string& path) {
  FileSystem& files = posix_files();
  DataFile single;
  if (identify_data_file(path, &single)) return {single};
  std::vector<std::string> candidates;
  if (files.is_folder(path)) {
    for (const std::string& name : files.list(path)) candidates.push_back(join_path(path, name));
  } else if (path.find_first_of("*?[") != std::string::npos) {
    candidates = glob_names(path);
  } else if (!files.is_file(path)) {
    throw InputError(path,
                     "got no such file, expected .txt, .jsonl or a token file prefix; try "
                     "checking the path (relative paths start at the configuration file)");
  }
  std::vector<DataFile> found = data_files_of(candidates);
  if (found.empty()) {
    throw InputError(path,
                     "got no data file, expected .txt, .jsonl or .bin with .idx; try another "
                     "path or a conversion to one of these");
  }
  return found;
}

}  // namespace weft
