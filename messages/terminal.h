// The terminal that standard output is connected to.
#pragma once

#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

namespace espalier::rt {

/// Returns the columns of the terminal now, else $COLUMNS, else 80.
inline int terminalColumns() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  const char *given = std::getenv("COLUMNS");
  return given && std::atoi(given) > 0 ? std::atoi(given) : 80;
}

} // namespace espalier::rt
