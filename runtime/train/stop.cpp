// The handler only notes the signal: rank 0 looks before each meeting.
#include "runtime/train/stop.h"

#include <csignal>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr int signals[] = {SIGTERM, SIGINT, SIGHUP};

/// Signal handlers reach nothing else.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  int none = 0;
  if (!received.compare_exchange_strong(none, signal))
    _exit(128 + none);
  constexpr char text[] = "the run ends after this step; a second signal ends it at once\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
}

} // namespace

void stopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (int signal : signals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
  }
}

int stopSignal() { return received.load(); }

const char *signalName(int signal) { return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP"; }

} // namespace espalier::rt
