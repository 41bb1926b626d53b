#include "weft/train/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "weft/base/log.h"

namespace weft {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[2K";
constexpr std::chrono::milliseconds kRedrawInterval{40};

/// The bar that is on the screen. Log hooks are plain functions, hence one per process.
struct Screen {
  std::mutex mutex;
  std::string line;
  bool stepped_aside = false;  // a log line is being written
  std::chrono::steady_clock::time_point drawn;

  void show() { fmt::print(stderr, "{}{}", kClearLine, line), std::fflush(stderr); }
  void hide() {
    if (!line.empty()) fmt::print(stderr, "{}", kClearLine), std::fflush(stderr);
  }
};

Screen& screen() {
  static Screen instance;
  return instance;
}

void before_log() {
  const std::lock_guard lock(screen().mutex);
  screen().stepped_aside = true;
  screen().hide();
}

void after_log() {
  const std::lock_guard lock(screen().mutex);
  screen().stepped_aside = false;
  if (!screen().line.empty()) screen().show();
}

bool has_text(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool utf8_locale() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!has_text(variable)) continue;
    const std::string_view name = std::getenv(variable);
    return name.find("UTF-8") != name.npos || name.find("utf8") != name.npos;
  }
  return false;
}

/// 950, 12.3k, 4.56M: three digits.
std::string count_text(double value) {
  const char* units[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", value);
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

std::string position_text(int64_t step, int64_t total) {
  const std::string last = std::to_string(total);
  return fmt::format("{:>{}}/{}", step, last.size(), last);
}

std::string gauge(double part, int columns, bool color) {
  if (columns < 4) return "";
  const bool fine = utf8_locale();
  const int done = std::clamp(static_cast<int>(part * columns), 0, columns);
  std::string full, rest;
  for (int i = 0; i < done; ++i) full += fine ? "━" : "=";
  for (int i = done; i < columns; ++i) rest += fine ? "─" : "-";
  if (!color) return full + rest;
  return fmt::format("\x1b[36m{}\x1b[0m\x1b[2m{}\x1b[0m", full, rest);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string step_line(const StepRecord& r, int64_t total_steps) {
  std::string line =
      fmt::format("step {}  loss {:.4f}  norm {:.4g}  lr {:.2e}  {} tok/s  {:.1f} ms",
                  position_text(r.step, total_steps), r.loss, r.grad_norm, r.lr,
                  count_text(r.tokens_per_s), r.step_ms);
  if (r.has_experts) {
    line += fmt::format("  aux {:.4f}", r.aux_loss);
    if (r.dropped_tokens > 0) line += fmt::format("  dropped {}", r.dropped_tokens);
  }
  if (r.skipped) line += fmt::format("  skipped (loss scale {:g})", r.loss_scale);
  return line;
}

std::string eval_line(const EvalRecord& r) {
  return fmt::format("eval at step {}  loss {:.4f}  perplexity {:.4g}  {} tokens", r.step, r.loss,
                     r.perplexity, r.tokens);
}

std::string bar_line(const StepRecord& r, int64_t total_steps, double remaining_s,
                     std::string_view phase, int width, bool color) {
  constexpr int kGauge = 24;
  const double part =
      total_steps > 0 ? static_cast<double>(r.step) / static_cast<double>(total_steps) : 0;
  const std::string head = position_text(r.step, total_steps);
  const std::string left =
      remaining_s < 0 ? std::string("…") : duration_text(remaining_s) + " left";
  std::string last = phase.empty() ? left : std::string(phase);
  // In the order of their worth: what does not fit is left out from the end.
  struct Field {
    std::string text;
    int place;
  };
  std::vector<Field> fields = {{fmt::format("loss {:.4f}", r.loss), 1},
                               {std::move(last), 5},
                               {fmt::format("{} tok/s", count_text(r.tokens_per_s)), 4},
                               {fmt::format("norm {:.3g}", r.grad_norm), 2},
                               {fmt::format("lr {:.2e}", r.lr), 3}};
  const auto columns = [](std::string_view text) {  // UTF-8 continuation bytes take none
    return static_cast<int>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  int used = columns(head);
  size_t kept = 0;
  while (kept < fields.size() && used + 2 + columns(fields[kept].text) <= width) {
    used += 2 + columns(fields[kept++].text);
  }
  fields.resize(kept);
  std::sort(fields.begin(), fields.end(),
            [](const Field& a, const Field& b) { return a.place < b.place; });
  const std::string bar = gauge(part, std::min(kGauge, width - used - 1), color);
  std::string line = head;
  if (!bar.empty()) line += " " + bar;
  for (const Field& field : fields) line += "  " + field.text;
  return line;
}

Progress::Progress(const ProgressOptions& options) : options_(options), terminal_(is_terminal()) {
  last_.step = options.first_step - 1;
  if (terminal_) set_log_hooks(before_log, after_log);
}

Progress::~Progress() {
  if (!terminal_) return;
  set_log_hooks(nullptr, nullptr);
  const std::lock_guard lock(screen().mutex);
  screen().hide();
  screen().line.clear();
}

void Progress::step(const StepRecord& record) {
  // The first step of a process warms up and says nothing about the others.
  ++steps_seen_;
  if (steps_seen_ <= 2) {
    mean_ms_ = record.step_ms;
  } else {
    mean_ms_ += 0.1 * (record.step_ms - mean_ms_);
  }
  last_ = record;
  const bool last = record.step >= options_.total_steps;
  if (last || options_.log_every <= 1 || record.step % options_.log_every == 0) {
    const std::string line = step_line(record, options_.total_steps);
    // On a terminal the bar says it; the log file has it either way.
    log_line(terminal_ ? LogLevel::debug : LogLevel::info, line);
  }
  if (terminal_) redraw(false);
}

void Progress::eval(const EvalRecord& record) { log_line(LogLevel::info, eval_line(record)); }

void Progress::phase(std::string_view text) {
  phase_ = text;
  if (terminal_ && steps_seen_ > 0) redraw(true);
}

void Progress::redraw(bool at_once) {
  const int64_t to_do = std::max<int64_t>(options_.total_steps - last_.step, 0);
  const double remaining_s = steps_seen_ < 2 ? -1 : mean_ms_ * 1e-3 * static_cast<double>(to_do);
  std::string line = bar_line(last_, options_.total_steps, remaining_s, phase_,
                              terminal_width() - 1, !has_text("NO_COLOR"));
  Screen& s = screen();
  const std::lock_guard lock(s.mutex);
  const auto now = std::chrono::steady_clock::now();
  s.line = std::move(line);
  if (s.stepped_aside || (!at_once && to_do > 0 && now - s.drawn < kRedrawInterval)) return;
  s.drawn = now;
  s.show();
}

}  // namespace weft
