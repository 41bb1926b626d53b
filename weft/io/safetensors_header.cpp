#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/io/safetensors.h"

namespace weft {
namespace {

struct FormatDType {
  std::string_view name;
  int bits;
};

/// All dtypes of the format, in its own order.
constexpr std::array<FormatDType, 22> kFormatDTypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

std::optional<size_t> format_position(std::string_view name) {
  for (size_t i = 0; i < kFormatDTypes.size(); ++i) {
    if (kFormatDTypes[i].name == name) return i;
  }
  return std::nullopt;
}

/// a * b, or nothing on overflow; both >= 0.
std::optional<int64_t> multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

class HeaderParser {
 public:
  HeaderParser(int64_t data_begin, int64_t buffer_bytes, const std::string& where)
      : data_begin_(data_begin), buffer_bytes_(buffer_bytes), where_(where) {}

  SafetensorsHeader parse(std::string_view text) {
    if (text.empty() || text.front() != '{') {
      fail(
          "got a header that does not begin with '{{', expected a JSON object; is this a "
          "safetensors file?");
    }
    const Json json = parse_json(text, where_);
    header_.data_begin = data_begin_;
    for (const auto& [name, member] : json.as_object()) {
      if (name == "__metadata__") {
        read_metadata(member);
      } else {
        header_.tensors.push_back(read_tensor(name, member));
      }
    }
    check_layout();
    return std::move(header_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError(where_, fmt::format(format, std::forward<Args>(args)...));
  }

  void read_metadata(const Json& json) {
    if (json.is_null()) return;
    if (!json.is_object()) fail("__metadata__ is no object of strings");
    for (const auto& [key, value] : json.as_object()) {
      if (!value.is_string()) fail("__metadata__ member \"{}\" is no string", key);
      header_.metadata[key] = value.as_string();
    }
  }

  TensorEntry read_tensor(const std::string& name, const Json& json) const {
    if (!json.is_object()) fail("tensor \"{}\" is no object", name);
    TensorEntry entry;
    entry.name = name;
    const int bits = read_dtype(json, entry);
    int64_t elements = 1;
    const Json* shape = json.find("shape");
    if (shape == nullptr || !shape->is_array()) fail("tensor \"{}\" has no shape", name);
    for (const Json& extent : shape->as_array()) {
      if (!extent.is_int() || extent.as_int() < 0) {
        fail("tensor \"{}\" has extent {} in its shape, expected an integer >= 0", name,
             extent.dump());
      }
      entry.shape.push_back(extent.as_int());
    }
    // A zero anywhere makes the product zero, whatever the other extents are.
    const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
    for (const int64_t extent : entry.shape) {
      const auto product = multiply(elements, empty ? 1 : extent);
      if (!product) fail("tensor \"{}\" has a shape whose product overflows", name);
      elements = *product;
    }
    if (empty) elements = 0;
    const auto total_bits = multiply(elements, bits);
    if (!total_bits) fail("tensor \"{}\" has a shape whose product overflows", name);
    if (*total_bits % 8 != 0) fail("tensor \"{}\" does not fill whole bytes", name);
    read_offsets(json, entry, *total_bits / 8);
    return entry;
  }

  int read_dtype(const Json& json, TensorEntry& entry) const {
    const Json* dtype = json.find("dtype");
    if (dtype == nullptr || !dtype->is_string()) fail("tensor \"{}\" has no dtype", entry.name);
    entry.dtype_name = dtype->as_string();
    const auto position = format_position(entry.dtype_name);
    if (!position) {
      fail("tensor \"{}\" has dtype \"{}\", expected one of the format, such as F32, BF16 or F16",
           entry.name, entry.dtype_name);
    }
    entry.dtype = parse_safetensors_dtype(entry.dtype_name).value_or(DType::none);
    return kFormatDTypes[*position].bits;
  }

  void read_offsets(const Json& json, TensorEntry& entry, int64_t expected) const {
    const Json* offsets = json.find("data_offsets");
    const auto is_offset = [](const Json& value) { return value.is_int() && value.as_int() >= 0; };
    if (offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2 ||
        !is_offset(offsets->as_array()[0]) || !is_offset(offsets->as_array()[1])) {
      fail("tensor \"{}\" has no data_offsets of two integers >= 0", entry.name);
    }
    const int64_t begin = offsets->as_array()[0].as_int();
    const int64_t end = offsets->as_array()[1].as_int();
    if (end < begin || end > buffer_bytes_) {
      fail(
          "tensor \"{}\" lies at bytes {} to {}, expected a range inside the {} bytes of data; "
          "the file may be cut short",
          entry.name, begin, end, buffer_bytes_);
    }
    if (end - begin != expected) {
      fail("tensor \"{}\" has {} bytes, expected {} for {} {}", entry.name, end - begin, expected,
           entry.dtype_name, shape_text(entry.shape));
    }
    entry.offset = data_begin_ + begin;
    entry.bytes = end - begin;
  }

  void check_layout() {
    std::sort(header_.tensors.begin(), header_.tensors.end(),
              [](const TensorEntry& a, const TensorEntry& b) {
                return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
              });
    int64_t end = data_begin_;
    for (const TensorEntry& entry : header_.tensors) {
      if (entry.offset != end) {
        fail("tensor \"{}\" begins at byte {} of the data, expected {}: {}", entry.name,
             entry.offset - data_begin_, end - data_begin_,
             entry.offset < end ? "tensors overlap" : "there is a gap");
      }
      end += entry.bytes;
    }
    if (end != data_begin_ + buffer_bytes_) {
      fail("got {} bytes of data, expected {}: {} spare bytes at the end", buffer_bytes_,
           end - data_begin_, data_begin_ + buffer_bytes_ - end);
    }
  }

  int64_t data_begin_;
  int64_t buffer_bytes_;
  const std::string& where_;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_begin,
                                           int64_t buffer_bytes, const std::string& where) {
  return HeaderParser(data_begin, buffer_bytes, where).parse(text);
}

void sort_safetensors(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const size_t left = format_position(safetensors_dtype_name(a.dtype)).value_or(0);
    const size_t right = format_position(safetensors_dtype_name(b.dtype)).value_or(0);
    return left != right ? left > right : a.name < b.name;
  });
}

}  // namespace weft
