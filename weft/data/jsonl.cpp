#include "weft/data/jsonl.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kIgnored = -100;

std::string row_name(const std::string& file, int64_t number) {
  return fmt::format("{} row {}", file, number);
}

const char* kind_of(const Json* json) {
  if (json == nullptr) return "no such key";
  if (json->is_null()) return "null";
  if (json->is_bool()) return "a boolean";
  if (json->is_number()) return "a number";
  if (json->is_string()) return "a string";
  return json->is_array() ? "an array" : "an object";
}

std::vector<int32_t> read_ids(const Json& row, const char* key, const JsonlLimits& limits,
                              bool labels, const std::string& where) {
  const Json& json = row.at(key);
  if (!json.is_array()) {
    throw InputError(
        where, fmt::format("got {} for \"{}\", expected an array of ids", kind_of(&json), key));
  }
  std::vector<int32_t> ids;
  ids.reserve(json.as_array().size());
  for (const Json& item : json.as_array()) {
    const bool ok = item.is_int() && ((item.as_int() >= 0 && item.as_int() < limits.vocab_size) ||
                                      (labels && item.as_int() == kIgnored));
    if (!ok) {
      throw InputError(where,
                       fmt::format("got {} at position {} of \"{}\", expected ids from 0 to "
                                   "{}{}",
                                   item.is_number() ? item.dump() : kind_of(&item), ids.size(), key,
                                   limits.vocab_size - 1, labels ? " or -100" : ""));
    }
    ids.push_back(static_cast<int32_t>(item.as_int()));
  }
  return ids;
}

void check_mask(const Json& row, size_t size, const std::string& where) {
  const Json* mask = row.find("attention_mask");
  if (mask == nullptr) return;
  const bool all_seen =
      mask->is_array() && mask->as_array().size() == size &&
      std::all_of(mask->as_array().begin(), mask->as_array().end(),
                  [](const Json& item) { return item.is_int() && item.as_int() == 1; });
  if (!all_seen) {
    throw InputError(where,
                     "got an attention_mask that hides ids, expected all ones; try leaving "
                     "out the padding, rows are padded when they are read");
  }
}

/// False for an empty row.
bool parse_row(std::string_view line, const JsonlLimits& limits, const std::string& file,
               JsonlRow* out) {
  const std::string where = row_name(file, out->number);
  const Json json = parse_json(line, where);
  if (!json.is_object()) {
    throw InputError(where, fmt::format("got {}, expected an object with \"text\" or \"input_ids\"",
                                        kind_of(&json)));
  }
  if (json.contains("input_ids")) {
    out->is_text = false;
    out->input_ids = read_ids(json, "input_ids", limits, false, where);
    const auto size = static_cast<int64_t>(out->input_ids.size());
    if (limits.max_ids > 0 && size > limits.max_ids) {
      throw InputError(where, fmt::format("got {} input_ids, expected at most seq_len = {}; try a "
                                          "longer data.seq_len or shorter rows",
                                          size, limits.max_ids));
    }
    out->labels =
        json.contains("labels") ? read_ids(json, "labels", limits, true, where) : out->input_ids;
    if (out->labels.size() != out->input_ids.size()) {
      throw InputError(where, fmt::format("got {} labels for {} input_ids, expected as many",
                                          out->labels.size(), size));
    }
    check_mask(json, out->input_ids.size(), where);
    return size > 0;
  }
  const Json* text = json.find("text");
  if (text == nullptr || !text->is_string()) {
    throw InputError(where, fmt::format("got {} for \"text\", expected a string (or \"input_ids\")",
                                        kind_of(text)));
  }
  out->is_text = true;
  out->text = text->as_string();
  return !is_blank(out->text);
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

int64_t read_jsonl(const ByteSource& source, const JsonlLimits& limits,
                   const std::function<void(JsonlRow&)>& row) {
  std::string line;
  std::string piece;
  int64_t number = 0;
  int64_t empty = 0;
  const auto end_row = [&] {
    ++number;
    if (!is_blank(line)) {
      JsonlRow current;
      current.number = number;
      if (parse_row(line, limits, source.name(), &current)) {
        row(current);
      } else {
        ++empty;
      }
    }
    line.clear();
  };
  for (int64_t at = 0; at < source.size(); at += static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, source.size() - at)));
    source.read(at, piece.data(), static_cast<int64_t>(piece.size()));
    std::string_view rest = piece;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      line += rest.substr(0, end);
      if (static_cast<int64_t>(line.size()) > kMaxRowBytes) {
        throw InputError(row_name(source.name(), number + 1),
                         fmt::format("got more than {} bytes in one row, expected a line end; try "
                                     "splitting the document",
                                     kMaxRowBytes));
      }
      if (end == std::string_view::npos) break;
      end_row();
      rest.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) end_row();
  return empty;
}

}  // namespace weft
