// Reports crashes by hardware signals. Before a bad address in a kernel ends the process, the rank, the op and its line
// in the model file are printed to standard error.
#pragma once

#include "runtime/status.h"

#include <functional>

namespace espalier::rt {

class Executor;

/// During its lifetime, the thread works for `executor`, whose position is part of a crash report.
class CrashSite {
public:
  explicit CrashSite(const Executor *executor);
  ~CrashSite();
  CrashSite(const CrashSite &) = delete;

  /// Returns the executor that this thread works for, to pass on to helper threads; null for none.
  static const Executor *current();

private:
  const Executor *before;
};

/// Installs handlers for SIGSEGV, SIGBUS, SIGFPE and SIGILL that print the position of the failing rank, then end the
/// process with the signal. A mapped file that was truncated is not a crash: it is named, and the process exits with 1.
/// Changes the whole process, so only the command line tool calls it.
void reportCrashes();

/// Passes later crash reports to `tell` instead of printing them. `tell` runs in a signal handler and may end the
/// process. An empty function restores printing.
void onCrash(std::function<void(const Failure &)> tell);

} // namespace espalier::rt
