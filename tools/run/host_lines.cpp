// A shell splits the words of `command`, as mpirun does with its agent. Signals arrive through a signalfd, so that one
// poll loop waits for signals and processes.
#include "tools/run/host_lines.h"

#include "messages/error_line.h"
#include "runtime/launch/frames.h"
#include "runtime/processes/child_process.h"
#include "runtime/status.h"
#include "tools/run/run_status.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

/// Time limits after which remaining processes are killed. After a failure, the other hosts end without a signal. After
/// a signal, they first save a checkpoint.
constexpr std::chrono::milliseconds afterFailure{1500}, afterSignal{600000};
/// ssh's exit status for an unreachable host.
constexpr int unreached = 255;

struct HostProcess {
  std::string address;
  pid_t id = -1;
  int input = -1;
  std::optional<int> status;
};

/// Writes a line to the standard input of a host's process.
void say(HostProcess &process, std::string_view line) {
  if (process.input >= 0) [[maybe_unused]]
    ssize_t written = write(process.input, line.data(), line.size());
}

void closeInput(HostProcess &process) {
  if (process.input >= 0)
    close(process.input);
  process.input = -1;
}

/// Executes `command ADDRESS LINE` in place of this process.
[[noreturn]] void becomeLine(const std::string &command, const HostLine &line) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::string script = "exec " + command + " \"$@\"";
  execl("/bin/sh", "sh", "-c", script.c_str(), "sh", line.address.c_str(), line.line.c_str(), nullptr);
  _exit(127);
}

HostProcess start(const std::string &command, const HostLine &line, const std::string &token) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw rt::MemoryError(fmt::format("the system refuses a pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  pid_t id = fork();
  if (id == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(ends[0], STDIN_FILENO);
    becomeLine(command, line);
  }
  close(ends[0]);
  if (id < 0) {
    close(ends[1]);
    throw rt::MemoryError(fmt::format("the system refuses a process: {}", std::strerror(errno)));
  }
  std::string first = token + "\n";
  [[maybe_unused]] ssize_t written = write(ends[1], first.data(), first.size()); // fits into an empty pipe
  return {line.address, id, ends[1], std::nullopt};
}

/// The processes of all hosts, until they have exited.
class Hosts {
public:
  Hosts(const std::string &command, const std::vector<HostLine> &lines, const std::string &token);
  ~Hosts();
  int run();

private:
  void reap();
  void takeSignal();

  const std::string &command;
  std::vector<HostProcess> processes;
  int signals = -1;
  sigset_t before{};
  int result = 0, signalsSeen = 0;
  std::optional<Clock::time_point> end;
};

Hosts::Hosts(const std::string &command, const std::vector<HostLine> &lines, const std::string &token)
    : command(command) {
  sigset_t taken = rt::awaitedSignals({SIGTERM, SIGINT, SIGHUP});
  sigprocmask(SIG_BLOCK, &taken, &before);
  std::signal(SIGPIPE, SIG_IGN);
  signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  for (const HostLine &line : lines)
    processes.push_back(start(command, line, token));
}

Hosts::~Hosts() {
  for (HostProcess &process : processes)
    closeInput(process);
  close(signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

void Hosts::takeSignal() {
  signalfd_siginfo info{};
  while (read(signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD)
      continue;
    if (signalsSeen++ == 0)
      result = 128 + static_cast<int>(info.ssi_signo);
    for (HostProcess &process : processes)
      say(process, "end\n");
    end = Clock::now() + (signalsSeen == 1 ? afterSignal : afterFailure);
  }
}

void Hosts::reap() {
  for (HostProcess &process : processes) {
    std::optional<int> status = process.status ? std::nullopt : rt::endedStatus(process.id);
    if (!status)
      continue;
    process.status = rt::exitStatusOf(*status);
    closeInput(process);
    if (*process.status == 0 || result != 0)
      continue;
    result = isStatusOfRun(*process.status) ? *process.status : 1; // a host may have died
    if (*process.status == unreached)
      printError("espalier", fmt::format("{} cannot be reached: {} ended with status 255; all hosts stopped",
                                         process.address, command));
    if (*process.status == 127)
      printError("espalier", fmt::format("{}: the command was not found there, or {} here", process.address, command));
    for (HostProcess &other : processes)
      closeInput(other);
    if (!end)
      end = Clock::now() + afterFailure;
  }
}

int Hosts::run() {
  auto isRunning = [](const HostProcess &process) { return !process.status; };
  while (std::ranges::any_of(processes, isRunning)) {
    pollfd wait{signals, POLLIN, 0};
    ::poll(&wait, 1, 100);
    takeSignal();
    reap();
    if (end && Clock::now() > *end)
      for (HostProcess &process : processes)
        if (isRunning(process))
          kill(process.id, SIGKILL);
  }
  return result;
}

} // namespace

std::string makeToken() {
  std::string text;
  for (uint8_t byte : rt::launch::makeNonce())
    text += fmt::format("{:02x}", byte);
  return text;
}

std::string makeRendezvous(const std::string &address) {
  rt::Digest random = rt::launch::makeNonce();
  constexpr int firstPort = 20000, ports = 12000; // below the usual ephemeral ports
  bool isV6 = address.find(':') != std::string::npos;
  std::string host = address.substr(address.find('@') + 1); // npos + 1: the whole
  return fmt::format("{}:{}", isV6 ? "[" + host + "]" : host, firstPort + (random[0] * 256 + random[1]) % ports);
}

std::vector<std::string> hostsThatRun(const std::string &command, const std::vector<HostLine> &lines,
                                      std::chrono::milliseconds patience) {
  std::vector<HostProcess> processes;
  std::fflush(nullptr);
  for (const HostLine &line : lines) {
    pid_t id = fork();
    if (id == 0) {
      setpgid(0, 0); // so that its children can be killed, too
      if (int nothing = open("/dev/null", O_RDWR); nothing >= 0)
        for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
          dup2(nothing, stream);
      becomeLine(command, line);
    }
    if (id > 0)
      setpgid(id, id); // whichever of the two processes is first
    if (id > 0)
      processes.push_back({line.address, id, -1, std::nullopt});
  }
  auto isRunning = [](const HostProcess &process) { return !process.status; };
  for (auto end = Clock::now() + patience; std::ranges::any_of(processes, isRunning);) {
    bool isLate = Clock::now() > end;
    for (HostProcess &process : processes) {
      if (process.status)
        continue;
      if (isLate)
        kill(-process.id, SIGKILL);
      if (std::optional<int> status = isLate ? rt::waitFor(process.id) : rt::endedStatus(process.id))
        process.status = rt::exitStatusOf(*status);
    }
    usleep(10000);
  }
  std::vector<std::string> alive;
  for (const HostProcess &process : processes)
    if (process.status == 0)
      alive.push_back(process.address);
  return alive;
}

int runHostLines(const std::string &command, const std::vector<HostLine> &lines, const std::string &token) {
  return Hosts(command, lines, token).run();
}

} // namespace espalier
