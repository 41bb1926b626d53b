// Checks for weft's own mistakes. A failed check throws BugError (exit code 70); mistakes of the
// user or the environment throw their own types instead (error.h).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "weft/base/error.h"

/// Throws BugError with `where` and a formatted message unless `condition` holds.
#define WEFT_CHECK(condition, where, ...)                          \
  do {                                                             \
    if (!(condition)) {                                            \
      throw ::weft::BugError((where), ::fmt::format(__VA_ARGS__)); \
    }                                                              \
  } while (false)

namespace weft {

/// Integer conversion that throws BugError when the value does not fit.
template <class To, class From>
To narrow(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  const To result = static_cast<To>(value);
  WEFT_CHECK(static_cast<From>(result) == value && ((result < To{}) == (value < From{})), "narrow",
             "value {} does not fit the target type", value);
  return result;
}

/// a / b for integers that must divide; throws BugError otherwise.
inline int64_t div_exact(int64_t a, int64_t b) {
  WEFT_CHECK(b != 0 && a % b == 0, "div_exact", "{} is not a multiple of {}", a, b);
  return a / b;
}

/// Smallest multiple of `step` that is >= `value`.
inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace weft
