// mpirun and its daemons detect a lost connection only after minutes, because they wait for the peer. The process that
// ends them must outlive the ranks, so it has its own session and closes its files. Otherwise the daemon would wait for
// its output, and peers for its connections.
#include "runtime/launch/mpi_daemon.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace espalier::rt::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr milliseconds lookEvery{20};

/// Returns whether the process is a running child of `parent`. A zombie is not running.
bool runsUnder(pid_t parent, const fs::path &process) {
  std::ifstream file(process / "stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  size_t name = text.rfind(')'); // "pid (name) state parent ..."
  if (name == std::string::npos || name + 4 >= text.size() || text[name + 2] == 'Z')
    return false;
  pid_t found = 0;
  std::from_chars(text.data() + name + 4, text.data() + text.size(), found);
  return found == parent;
}

fs::path programOf(const fs::path &process) {
  std::error_code gone;
  return fs::read_symlink(process / "exe", gone);
}

/// Returns whether `daemon` has children that run this program.
bool hasOurs(pid_t daemon) {
  const fs::path own = programOf("/proc/self");
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator("/proc", error))
    if (isdigit(entry.path().filename().native()[0]) && runsUnder(daemon, entry.path()) &&
        programOf(entry.path()) == own)
      return true;
  return false;
}

/// Returns whether the process of the handle ends within `patience`.
bool endsIn(int handle, milliseconds patience) {
  pollfd wait{handle, POLLIN, 0};
  return poll(&wait, 1, static_cast<int>(patience.count())) == 1;
}

void endDaemon(pid_t daemon, const DaemonPatience &patience) {
  int handle = static_cast<int>(syscall(SYS_pidfd_open, daemon, 0));
  if (handle < 0)
    return;
  auto kill = [&](int signal) { syscall(SYS_pidfd_send_signal, handle, signal, nullptr, 0); };
  for (auto end = Clock::now() + patience.processes; hasOurs(daemon) && Clock::now() < end;)
    if (endsIn(handle, lookEvery))
      return;
  if (endsIn(handle, patience.itself))
    return;
  for (int request = 0; request < 2; ++request) {
    kill(SIGTERM);
    if (endsIn(handle, patience.request))
      return;
  }
  kill(SIGKILL);
}

} // namespace

void endDaemonBehind(pid_t daemon, const DaemonPatience &patience) {
  if (daemon <= 1 || fork() != 0)
    return;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  syscall(SYS_close_range, 0U, ~0U, 0U);
  endDaemon(daemon, patience);
  _exit(0);
}

} // namespace espalier::rt::launch
