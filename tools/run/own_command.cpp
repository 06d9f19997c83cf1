#include "tools/run/own_command.h"

#include "runtime/processes/child_process.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <spawn.h>
#include <stdexcept>
#include <unistd.h>

namespace espalier {

ChildResult runOwnCommand(const std::vector<std::string> &words, ChildOutput output) {
  std::vector<std::string> line = {"espalier"};
  line.insert(line.end(), words.begin(), words.end());
  int ends[2] = {-1, -1};
  bool isCaptured = output != ChildOutput::Inherited;
  if (isCaptured && pipe(ends) != 0)
    throw std::runtime_error(fmt::format("no pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (isCaptured) {
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (output == ChildOutput::AllCaptured)
      posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
  }
  pid_t child = 0;
  int fault = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, rt::argumentsOf(line).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ChildResult result;
  if (isCaptured) {
    close(ends[1]);
    if (fault == 0)
      result.output = rt::readAll(ends[0]);
    close(ends[0]);
  }
  if (fault != 0)
    throw std::runtime_error(fmt::format("espalier {}: cannot be started: {}", words.front(), std::strerror(fault)));
  result.exitCode = rt::exitStatusOf(rt::waitFor(child));
  return result;
}

} // namespace espalier
