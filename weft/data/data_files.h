// Which files a data path means. docs/formats/tokens.md states the rules.
#pragma once

#include <string>
#include <vector>

namespace weft {

enum class DataFileKind { text, jsonl, tokens };

struct DataFile {
  DataFileKind kind = DataFileKind::text;
  std::string path;  // for tokens: the prefix without .bin or .idx
};

/// `path` itself when absolute or when `base_folder` is empty, else base_folder/path.
std::string resolve_path(const std::string& base_folder, const std::string& path);

/// The files behind one path: a .txt or .jsonl file, a token file (prefix, .bin or .idx), a folder
/// (its data files, not those of folders inside) or a glob pattern. The order is that of the names,
/// never that of the file system. Throws InputError when there are none.
std::vector<DataFile> find_data_files(const std::string& path);

/// Kind of a single existing file or prefix; false when it is none.
bool identify_data_file(const std::string& path, DataFile* file);

}  // namespace weft
