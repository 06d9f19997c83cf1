// mpirun kills its ranks one second after a termination request, too soon for a checkpoint. mpirun gets its own
// process group, because a terminal signals a whole group.
#include "tools/run/mpirun.h"

#include "runtime/processes/child_process.h"
#include "runtime/status.h"
#include "tools/run/run_status.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier {
namespace {

/// Number of requests to forward: the second one ends ranks at once. Later ones end mpirun.
constexpr int passedOn = 2;

/// Runs in the child: executes mpirun, or reports why that failed.
[[noreturn]] void become(std::vector<std::string> &line, const sigset_t &mask, int fault) {
  rt::separateChild(SIGTERM, mask);
  std::vector<char *> pointers = rt::argumentsOf(line);
  execvp(pointers[0], pointers.data());
  int error = errno;
  [[maybe_unused]] ssize_t written = write(fault, &error, sizeof error);
  _exit(127);
}

pid_t start(std::vector<std::string> &line, const sigset_t &mask) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw rt::MemoryError(fmt::format("the system refuses a pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  pid_t id = fork();
  if (id == 0)
    become(line, mask, ends[1]);
  int error = id < 0 ? errno : 0;
  close(ends[1]);
  if (id > 0 && read(ends[0], &error, sizeof error) == sizeof error)
    rt::waitFor(id);
  close(ends[0]);
  if (error != 0)
    throw rt::PlanError(fmt::format(
        "CPU plans are launched by mpirun, which cannot be started ({}); install openmpi-bin", std::strerror(error)));
  return id;
}

/// Maps mpirun's wait status to this process's exit status. If mpirun was killed, or crashed when it lost a host, the
/// run has failed, and the last output of the ranks may be lost.
int statusFor(int status, int signalHere) {
  if (WIFEXITED(status) && isStatusOfRun(WEXITSTATUS(status)))
    return signalHere != 0 && WEXITSTATUS(status) == 128 + SIGUSR1 ? 128 + signalHere : WEXITSTATUS(status);
  fmt::print(stderr,
             "espalier: mpirun ended by {} {}, which no rank did; why the ranks stopped is said above, or in "
             "--failure-report\n",
             WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 1;
}

} // namespace

std::vector<std::string> mpirunLine(const std::vector<rt::launch::Host> &hosts, const std::string &ssh) {
  std::vector<std::string> places;
  int ranks = 0;
  for (const rt::launch::Host &host : hosts) {
    places.push_back(fmt::format("{}:{}", host.address, host.slots));
    ranks += host.slots;
  }
  // Do not bind ranks to cores, because they may have several threads.
  std::vector<std::string> line = {
      "mpirun", "-np", std::to_string(ranks), "--host", fmt::format("{}", fmt::join(places, ",")), "--bind-to", "none"};
  if (!ssh.empty())
    line.insert(line.end(), {"--mca", "plm_rsh_agent", ssh});
  else
    line.insert(line.end(), {"--mca", "plm_rsh_args", connectOptions});
  return line;
}

int runMpirun(std::vector<std::string> line) {
  sigset_t awaited = rt::awaitedSignals({SIGTERM, SIGINT, SIGHUP, SIGTSTP}), before;
  sigprocmask(SIG_BLOCK, &awaited, &before);
  pid_t id = start(line, before);
  int first = 0, requests = 0;
  int status = rt::superviseChild(id, awaited, [&](int signal) {
    if (signal == SIGTSTP) { // mpirun forwards SIGTSTP and SIGCONT to all ranks
      kill(id, SIGTSTP);
      raise(SIGSTOP);
      kill(id, SIGCONT);
      return;
    }
    if (first == 0)
      first = signal;
    kill(id, ++requests <= passedOn ? SIGUSR1 : SIGTERM);
  });
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return statusFor(status, first);
}

} // namespace espalier
