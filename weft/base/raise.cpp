#include "weft/base/raise.h"

#include <fmt/core.h>

#include <new>

namespace weft {

void raise(ExitCode code, std::string_view where, std::string_view message) {
  switch (code) {
    case ExitCode::usage: throw UsageError(where, message);
    case ExitCode::input: throw InputError(where, message);
    case ExitCode::resource: throw ResourceError(where, message);
    case ExitCode::alarm: throw AlarmError(where, message);
    case ExitCode::peer: throw PeerError(where, message);
    case ExitCode::interrupted: throw Interrupted(where, message);
    case ExitCode::done:
    case ExitCode::bug: break;
  }
  throw BugError(where, message);
}

ErrorData error_data(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {known.code(), known.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::resource,
            "[memory] got no memory from the system, expected more free memory; try a smaller "
            "micro-batch or model"};
  } catch (const std::exception& other) {
    return {ExitCode::bug,
            fmt::format("[weft] got an unexpected error ({}), expected none; this is "
                        "a bug in weft",
                        other.what())};
  } catch (...) {
    return {ExitCode::bug,
            "[weft] got an exception of an unknown type, expected none; this is a "
            "bug in weft"};
  }
}

void raise(const ErrorData& error) {
  // The constructors put the brackets of "[where] message" back.
  const std::string_view text = error.text;
  const size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) raise(error.code, "weft", text);
  raise(error.code, text.substr(1, end - 1), text.substr(end + 2));
}

}  // namespace weft
