// The handler only records the signal. Ranks poll the record before each entry.
#include "runtime/train/stop.h"

#include "runtime/status.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

/// A signal handler can reach only globals. `received` holds the first signal of this process, `first` points to the
/// first signal of all processes that share it: a terminal signals all of them, and only one prints.
std::atomic<int> received{0};
std::atomic<std::atomic<int> *> first = &received;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::atomic<int> *>::is_always_lock_free);

void note(int signal) {
  int none = 0, noneAtAll = 0;
  if (!received.compare_exchange_strong(none, signal))
    _exit(128 + none);
  std::atomic<int> *shared = first;
  if (shared != &received && !shared->compare_exchange_strong(noneAtAll, signal))
    return;
  constexpr char text[] = "the run ends after this step; a second signal ends it at once\n";
  int error = errno; // of the interrupted call
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  errno = error;
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

void shareStopSignal() {
  void *page = mmap(nullptr, sizeof received, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    throw MemoryError("the system refuses memory that processes share");
  auto *shared = new (page) std::atomic<int>(0);
  first = shared;
  int none = 0, early = received.load(); // a signal that the handler did not record in the shared memory
  if (early != 0)
    shared->compare_exchange_strong(none, early);
}

int stopSignal() { return first.load()->load(); }

const char *signalName(int signal) {
  switch (signal) {
  case SIGTERM:
    return "SIGTERM";
  case SIGINT:
    return "SIGINT";
  case SIGHUP:
    return "SIGHUP";
  default:
    return "SIGUSR1";
  }
}

} // namespace espalier::rt
