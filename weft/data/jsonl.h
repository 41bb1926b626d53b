// Rows of a .jsonl file: {"text": …} documents and {"input_ids": […], "labels": […]} samples. A row
// ends at LF and nowhere else. Every InputError names the file and the row, counted from 1.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/file_pool.h"

namespace weft {

/// Longest row taken, so that a file without line ends does not fill the memory.
constexpr int64_t kMaxRowBytes = int64_t{1} << 30;

struct JsonlRow {
  int64_t number = 0;  // from 1; blank lines count
  bool is_text = false;
  std::string text;
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;  // as many as input_ids
};

struct JsonlLimits {
  int64_t vocab_size = 0;  // ids and labels lie below
  int64_t max_ids = 0;     // of a row; 0: no limit
};

/// Reads `source` row by row and calls `row` for each row that is not empty. Returns the number of
/// empty ones: text without anything but white space, or no ids. Blank lines are no rows. Other
/// keys are ignored, except that `attention_mask` may not hide ids.
int64_t read_jsonl(const ByteSource& source, const JsonlLimits& limits,
                   const std::function<void(JsonlRow&)>& row);

/// True for a text that is empty or has only space, \t, \n, \v, \f and \r: an empty document.
bool is_blank(std::string_view text);

}  // namespace weft
