// Errors as data: what one rank or thread met, thrown again elsewhere with the same type and text.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "weft/base/error.h"

namespace weft {

/// Throws the error type that owns `code` (BugError for codes of no error).
[[noreturn]] void raise(ExitCode code, std::string_view where, std::string_view message);

struct ErrorData {
  ExitCode code = ExitCode::done;
  std::string text;  // "[where] got …"; what() of the error
};
/// Code and text of any exception: memory that is not there is a ResourceError, an exception that
/// is no Error a bug.
ErrorData error_data(const std::exception_ptr& error);
/// Throws an error with exactly this code and text.
[[noreturn]] void raise(const ErrorData& error);

}  // namespace weft
