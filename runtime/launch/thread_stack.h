// The call stack of a thread of this or another process, for reports of threads that do not move.
#pragma once

#include "runtime/launch/rank_status.h"

#include <string>
#include <sys/types.h>

namespace espalier::rt {

/// As long as this exists, `activity` stands for the calling thread, which answers requestStack(). Null: no effect.
class WatchedThread {
public:
  explicit WatchedThread(Activity *activity);
  ~WatchedThread();
  WatchedThread(const WatchedThread &) = delete;

private:
  Activity *activity;
  int32_t before = 0;
};

/// Asks a thread for its stack. The thread leaves it in `activity` from a signal handler, unless the system does not
/// run the thread, as in a call to a disk that does not answer.
void requestStack(Activity &activity);

/// Returns the functions of the stack that the thread has left, the innermost first: "pause, fsync, main". Without a
/// stack, returns what the system says about the thread.
std::string stackText(const Activity &activity);

/// Returns the path of the file that a process has mapped at an address, with the offset in the file; empty for other
/// memory. Reads /proc, so that the runtime needs no table.
std::string mappedFileAt(pid_t process, uintptr_t address, uintptr_t *offset = nullptr);

/// Returns the nanoseconds for which a thread has computed, 0 if the system does not tell.
uint64_t computeTimeOf(int32_t thread);

/// Returns whether the thread is in a system call that writes to standard output or standard error, whose reader may
/// take its time.
bool isPrinting(int32_t thread);

} // namespace espalier::rt
