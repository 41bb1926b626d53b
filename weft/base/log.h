// Logging for people: one line per event, to stderr and, once a run folder exists, to log.txt.
// Thread-safe. The backend (spdlog) is seen only by log.cpp.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace weft {

enum class LogLevel { debug, info, warning, error };

void log_line(LogLevel level, std::string_view text);
/// Least level shown on stderr (default info).
void set_log_level(LogLevel level);
/// Also appends every line (with a time stamp) to `path`; "" stops that.
void set_log_file(const std::string& path);
/// Called before and after a line is written to stderr, so that a progress bar can step aside.
void set_log_hooks(void (*before)(), void (*after)());

/// While it lives, the lines of this thread, or of all threads, are those of one of many ranks:
/// ranks above 0 say nothing below a warning, and warnings and errors begin with "rank N: ".
class LogRank {
 public:
  enum class Scope { thread, process };
  explicit LogRank(int rank, Scope scope = Scope::thread);
  ~LogRank();
  LogRank(const LogRank&) = delete;
  LogRank& operator=(const LogRank&) = delete;

  /// Whose lines this thread writes; for work that it hands to other threads.
  static int current();

 private:
  const Scope scope_;
  const int outer_;
};

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
