// What is said when the processor itself stops a rank: a bad address in a kernel ends the process, but not before the
// rank, the op and its line in the model file are on standard error.
#pragma once

#include "runtime/status.h"

#include <functional>

namespace espalier::rt {

class Executor;

/// While it lives, this thread works for `executor`: a crash of the thread is reported with the executor's place.
class CrashSite {
public:
  explicit CrashSite(const Executor *executor);
  ~CrashSite();
  CrashSite(const CrashSite &) = delete;

  /// Whom this thread works for, to pass on to threads that help it; null for nobody.
  static const Executor *current();

private:
  const Executor *before;
};

/// From now on SIGSEGV, SIGBUS, SIGFPE and SIGILL write the place of the failing rank and then end the process as they
/// would have done without. A file that was truncated while it is mapped and read is no crash: it is named, and the
/// process ends with 1. For the whole process, hence called by the command alone.
void reportCrashes();

/// From now on such failures are not written but handed to `tell`, within a signal handler, which may end the process;
/// empty: as before.
void onCrash(std::function<void(const Failure &)> tell);

} // namespace espalier::rt
