// The only callers of waitpid.
#include "runtime/processes/child_process.h"

#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt {

void separateChild(int deathSignal, const sigset_t &mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, deathSignal);
  if (int nothing = open("/dev/null", O_RDONLY); nothing >= 0)
    dup2(nothing, STDIN_FILENO); // background process groups may not read from a terminal
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

std::vector<char *> argumentsOf(std::vector<std::string> &arguments) {
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string readAll(int descriptor) {
  std::string text;
  char part[4096];
  for (ssize_t count; (count = read(descriptor, part, sizeof part)) != 0;) {
    if (count > 0)
      text.append(part, static_cast<size_t>(count));
    else if (errno != EINTR)
      break;
  }
  return text;
}

std::optional<int> endedStatus(pid_t child) {
  int status = 0;
  return waitpid(child, &status, WNOHANG) == child ? std::optional(status) : std::nullopt;
}

int waitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  return status;
}

int exitStatusOf(int waitStatus) {
  return WIFSIGNALED(waitStatus) ? 128 + WTERMSIG(waitStatus) : WEXITSTATUS(waitStatus);
}

sigset_t awaitedSignals(std::initializer_list<int> signals) {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (int signal : signals)
    sigaddset(&awaited, signal);
  return awaited;
}

int superviseChild(pid_t child, const sigset_t &awaited, const std::function<void(int)> &handle,
                   std::optional<std::chrono::nanoseconds> pollEvery, const std::function<void()> &poll) {
  timespec interval{0, pollEvery.value_or(std::chrono::nanoseconds(0)).count()}; // less than a second
  for (;;) {
    if (std::optional<int> status = endedStatus(child))
      return *status;
    int signal = sigtimedwait(&awaited, nullptr, pollEvery ? &interval : nullptr);
    if (signal > 0 && signal != SIGCHLD)
      handle(signal);
    poll();
  }
}

} // namespace espalier::rt
