// Ends the mpirun daemon that started this process (mpirun itself on its own host) after a failure of a run on several
// hosts, because the daemon would wait for a host that does not answer.
#pragma once

#include <chrono>
#include <sys/types.h>

namespace espalier::rt::launch {

/// The time within which a daemon may end by itself: after the processes that it started, then after each request.
/// mpirun sleeps for a second while it ends ranks, and forwards their output only afterwards.
struct DaemonPatience {
  std::chrono::milliseconds processes{1000}, itself{1200}, request{100};
};

/// Forks a process that ends `daemon`, the parent of this process, after the daemon's processes of this program have
/// ended. The forked process gives the daemon time to forward their output, sends SIGTERM twice, and then kills. Does
/// nothing if the fork fails.
void endDaemonBehind(pid_t daemon, const DaemonPatience &patience = {});

} // namespace espalier::rt::launch
