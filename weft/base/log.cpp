#include "weft/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdio>
#include <mutex>

namespace weft {
namespace {

struct State {
  std::mutex mutex;
  LogLevel level = LogLevel::info;
  std::shared_ptr<spdlog::logger> file;
  void (*before)() = nullptr;
  void (*after)() = nullptr;
};

State& state() {
  static State instance;
  return instance;
}

std::atomic<int> process_rank = 0;
thread_local int thread_rank = -1;  // -1 = that of the process

const char* prefix(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "weft: debug: ";
    case LogLevel::warning: return "weft: warning: ";
    case LogLevel::error: return "weft: error: ";
    case LogLevel::info: break;
  }
  return "";
}

spdlog::level::level_enum file_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::info: break;
  }
  return spdlog::level::info;
}

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  const int rank = LogRank::current();
  if (rank > 0 && level < LogLevel::warning) return;
  const std::string named = rank > 0 ? fmt::format("rank {}: {}", rank, text) : "";
  if (rank > 0) text = named;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (level >= s.level) {
    if (s.before != nullptr) s.before();
    fmt::print(stderr, "{}{}\n", prefix(level), text);
    std::fflush(stderr);
    if (s.after != nullptr) s.after();
  }
  if (s.file != nullptr) s.file->log(file_level(level), "{}", text);
}

void set_log_level(LogLevel level) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.level = level;
}

void set_log_file(const std::string& path) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.file.reset();
  if (path.empty()) return;
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, false);
  s.file = std::make_shared<spdlog::logger>("weft", sink);
  s.file->set_level(spdlog::level::debug);
  s.file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  s.file->flush_on(spdlog::level::debug);
}

LogRank::LogRank(int rank, Scope scope)
    : scope_(scope), outer_(scope == Scope::thread ? thread_rank : process_rank.load()) {
  if (scope_ == Scope::thread) {
    thread_rank = rank;
  } else {
    process_rank = rank;
  }
}

LogRank::~LogRank() {
  if (scope_ == Scope::thread) {
    thread_rank = outer_;
  } else {
    process_rank = outer_;
  }
}

int LogRank::current() { return thread_rank >= 0 ? thread_rank : process_rank.load(); }

void set_log_hooks(void (*before)(), void (*after)()) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.before = before;
  s.after = after;
}

}  // namespace weft
