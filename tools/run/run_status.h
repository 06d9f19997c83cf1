// Exit statuses of `espalier run`. Other statuses come from the program that started it on a host.
#pragma once

#include <csignal>

namespace espalier {

/// Whether `espalier run` may exit with this status.
inline bool isStatusOfRun(int status) {
  for (int known : {0, 1, 2, 3, 128 + SIGHUP, 128 + SIGINT, 128 + SIGUSR1, 128 + SIGPIPE, 128 + SIGTERM})
    if (status == known)
      return true;
  return false;
}

} // namespace espalier
