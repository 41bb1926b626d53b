// The error types of weft. Every message reads `[where] got …, expected …; try …`.
//
// Three kinds of fault are kept apart because they need different readers: a mistake of the user
// (UsageError, InputError), a fault of the environment (ResourceError, PeerError) and a bug in weft
// (BugError). Each kind owns one process exit code. All types are copyable and safe to carry
// between threads in a std::exception_ptr.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace weft {

/// Process exit codes; docs/cli.md lists them for users.
enum class ExitCode : int {
  done = 0,
  usage = 2,         // usage or configuration
  input = 3,         // an input file or data is missing or bad
  resource = 4,      // not enough memory, disk or device
  alarm = 5,         // stopped by an alarm
  peer = 6,          // another rank failed or timed out
  bug = 70,          // a bug in weft
  interrupted = 75,  // stopped by a signal after saving
};

/// Base of all errors weft throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string_view where, std::string_view message);

  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// A wrong command line or configuration.
class UsageError : public Error {
 public:
  UsageError(std::string_view where, std::string_view message)
      : Error(ExitCode::usage, where, message) {}
};

/// A missing, damaged or unsuitable input file.
class InputError : public Error {
 public:
  InputError(std::string_view where, std::string_view message)
      : Error(ExitCode::input, where, message) {}
};

/// Memory, disk or a device is not there or not enough.
class ResourceError : public Error {
 public:
  ResourceError(std::string_view where, std::string_view message)
      : Error(ExitCode::resource, where, message) {}
};

/// Training was stopped by an alarm rule.
class AlarmError : public Error {
 public:
  AlarmError(std::string_view where, std::string_view message)
      : Error(ExitCode::alarm, where, message) {}
};

/// Another rank failed or did not answer in time.
class PeerError : public Error {
 public:
  PeerError(std::string_view where, std::string_view message)
      : Error(ExitCode::peer, where, message) {}
};

/// weft contradicts itself.
class BugError : public Error {
 public:
  BugError(std::string_view where, std::string_view message)
      : Error(ExitCode::bug, where, message) {}
};

/// Training ended early on SIGINT or SIGTERM, after a complete save.
class Interrupted : public Error {
 public:
  Interrupted(std::string_view where, std::string_view message)
      : Error(ExitCode::interrupted, where, message) {}
};

/// Text of errno value `code`, thread-safe.
std::string errno_text(int code);

}  // namespace weft
