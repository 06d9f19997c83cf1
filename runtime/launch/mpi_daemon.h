// The daemon of mpirun that started this process (mpirun itself on its own host): after a failure of several hosts it
// is ended, as it would wait for a host that does not answer.
#pragma once

#include <chrono>
#include <sys/types.h>

namespace espalier::rt::launch {

/// How long a daemon has to end by itself: after the processes that it started, then after each request. mpirun sleeps
/// for a second while it ends ranks, and passes on only then what they have said.
struct DaemonPatience {
  std::chrono::milliseconds processes{1000}, itself{1200}, request{100};
};

/// Leaves a process behind that ends `daemon`, this one's parent, once this program's processes that the daemon started
/// have ended: it asks twice, after which mpirun ends whatever it waits for, and then kills. What `daemon` passes on
/// from them has time to go through. Does nothing where the system refuses a process.
void endDaemonBehind(pid_t daemon, const DaemonPatience &patience = {});

} // namespace espalier::rt::launch
