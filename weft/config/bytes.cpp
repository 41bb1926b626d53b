#include <fmt/core.h>

#include <charconv>
#include <string>

#include "weft/base/error.h"
#include "weft/config/config.h"

namespace weft {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};

constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000 * 1000 * 1000},
    {"TB", int64_t{1000} * 1000 * 1000 * 1000},
    {"KiB", int64_t{1} << 10},
    {"MiB", int64_t{1} << 20},
    {"GiB", int64_t{1} << 30},
    {"TiB", int64_t{1} << 40},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view where) {
  const auto refuse = [&](std::string_view what) -> int64_t {
    throw UsageError(where, fmt::format("got size \"{}\"{}, expected an integer or a number with "
                                        "KB, MB, GB, TB, KiB, MiB, GiB or TiB; try \"4GiB\"",
                                        text, what));
  };
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == 0) return refuse("");
  int64_t whole = 0;
  if (std::from_chars(text.data(), text.data() + end, whole).ec != std::errc()) {
    return refuse(" beyond 2^63");
  }
  // Decimals as a fraction of 10^n, so that the result is exact or refused.
  int64_t fraction = 0;
  int64_t scale = 1;
  if (end < text.size() && text[end] == '.') {
    const size_t begin = ++end;
    while (end < text.size() && is_digit(text[end])) {
      if (end - begin >= 9) return refuse(" with more than 9 decimals");
      fraction = fraction * 10 + (text[end] - '0');
      scale *= 10;
      ++end;
    }
    if (end == begin) return refuse("");
  }
  std::string_view name = text.substr(end);
  if (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    int64_t bytes = 0;
    int64_t part = 0;
    if (__builtin_mul_overflow(whole, unit.bytes, &bytes)) return refuse(" beyond 2^63");
    if (__builtin_mul_overflow(fraction, unit.bytes, &part)) return refuse(" beyond 2^63");
    if (part % scale != 0) return refuse(" that is no whole number of bytes");
    if (__builtin_add_overflow(bytes, part / scale, &bytes)) return refuse(" beyond 2^63");
    return bytes;
  }
  return refuse("");
}

}  // namespace weft
