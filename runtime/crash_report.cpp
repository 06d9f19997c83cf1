// The signal handler formats the message, which allocates memory. This is safe for crashes in kernels. A crash inside
// the allocator could deadlock the handler, so an alarm then ends the process.
#include "runtime/crash_report.h"

#include "runtime/executor.h"
#include "runtime/launch/thread_stack.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr unsigned secondsForTheSentence = 3;

thread_local const Executor *running = nullptr;

std::function<void(const Failure &)> teller; ///< receives failures; empty: print to standard error

void tell(const std::string &message, const char *before) {
  Failure failure;
  if (running)
    failure = running->describe(message);
  else
    failure.message = message;
  if (teller)
    return teller(failure);
  std::string text = before + (running ? failure.sentence() : message) + "\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

/// Several threads may crash at once. The first one reports and ends the process.
void claim() {
  static std::atomic_flag isTold = ATOMIC_FLAG_INIT;
  while (isTold.test_and_set())
    pause();
  alarm(secondsForTheSentence);
}

void endBy(int signal) {
  // Delivered when the handler returns. The default action ends the process with the signal's own status.
  std::signal(signal, SIG_DFL);
  raise(signal);
}

/// Returns whether a process sent the signal. Then the siginfo holds the sender instead of an address.
bool isSent(const siginfo_t *info) { return info->si_code <= 0; }

std::string causeOf(int signal, const siginfo_t *info) {
  if (isSent(info))
    return fmt::format("its process was killed by signal {} ({}), which process {} sent", signal, strsignal(signal),
                       info->si_pid);
  const char *what = signal == SIGFPE ? "arithmetic fault" : signal == SIGILL ? "illegal instruction" : "bad address";
  return fmt::format("{} {}", what, info->si_addr);
}

void tellCrash(int signal, siginfo_t *info) {
  if (running)
    tell(causeOf(signal, info), "");
  endBy(signal);
}

void report(int signal, siginfo_t *info, void *) {
  claim();
  tellCrash(signal, info);
}

/// A bus error in a mapped file means that the file was truncated.
void reportBus(int signal, siginfo_t *info, void *) {
  claim();
  std::string file = isSent(info) ? "" : mappedFileAt(getpid(), reinterpret_cast<uintptr_t>(info->si_addr));
  if (file.empty())
    return tellCrash(signal, info);
  tell(file + " is shorter than when it was opened: it was truncated during the run", "espalier: error: ");
  _exit(1);
}

} // namespace

CrashSite::CrashSite(const Executor *executor) : before(running) { running = executor; }

CrashSite::~CrashSite() { running = before; }

const Executor *CrashSite::current() { return running; }

void onCrash(std::function<void(const Failure &)> tellOther) { teller = std::move(tellOther); }

void reportCrashes() {
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO;
  for (int signal : {SIGSEGV, SIGFPE, SIGILL})
    sigaction(signal, &action, nullptr);
  action.sa_sigaction = reportBus;
  sigaction(SIGBUS, &action, nullptr);
}

} // namespace espalier::rt
