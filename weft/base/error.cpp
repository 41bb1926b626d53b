#include "weft/base/error.h"

#include <fmt/core.h>

#include <system_error>

namespace weft {

Error::Error(ExitCode code, std::string_view where, std::string_view message)
    : std::runtime_error(fmt::format("[{}] {}", where, message)), code_(code) {}

std::string errno_text(int code) { return std::generic_category().message(code); }

}  // namespace weft
