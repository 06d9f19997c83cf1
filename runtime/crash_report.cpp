// The sentence is made in the signal handler, which allocates. That is safe where crashes are expected, in kernels; a
// crash inside the allocator could make it wait for ever, so an alarm ends the process then.
#include "runtime/crash_report.h"

#include "runtime/executor.h"

#include <csignal>
#include <fmt/format.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr unsigned secondsForTheSentence = 3;

thread_local const Executor *running = nullptr;

void report(int signal, siginfo_t *info, void *) {
  if (running) {
    alarm(secondsForTheSentence);
    const char *what = signal == SIGFPE ? "arithmetic fault" : signal == SIGILL ? "illegal instruction" : "bad address";
    std::string text = running->describe(fmt::format("{} {}", what, info->si_addr)).sentence() + "\n";
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
  // The action was reset on entry: the signal, due again, ends the process with its own status.
  raise(signal);
}

} // namespace

CrashSite::CrashSite(const Executor *executor) : before(running) { running = executor; }

CrashSite::~CrashSite() { running = before; }

const Executor *CrashSite::current() { return running; }

void reportCrashes() {
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    sigaction(signal, &action, nullptr);
}

} // namespace espalier::rt
