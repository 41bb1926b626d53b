#include "weft/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace weft {
namespace {

std::atomic<int> g_signal{0};
std::mutex g_mutex;  // of the numbers below
int g_users = 0;
struct sigaction g_old_int;
struct sigaction g_old_term;

void on_signal(int number) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, number)) _exit(128 + number);
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (g_users++ > 0) return;
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_old_int);
  sigaction(SIGTERM, &action, &g_old_term);
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_users > 0) return;
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
}

int StopSignals::received() { return g_signal; }

}  // namespace weft
