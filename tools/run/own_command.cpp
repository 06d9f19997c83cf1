#include "tools/run/own_command.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier {
namespace {

/// Reads a descriptor to its end.
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

} // namespace

ChildResult runOwnCommand(const std::vector<std::string> &words, ChildOutput output) {
  std::vector<char *> arguments;
  std::string program = "espalier";
  arguments.push_back(program.data());
  std::vector<std::string> copies = words;
  for (std::string &word : copies)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
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
  int fault = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ChildResult result;
  if (isCaptured) {
    close(ends[1]);
    if (fault == 0)
      result.output = readAll(ends[0]);
    close(ends[0]);
  }
  if (fault != 0)
    throw std::runtime_error(fmt::format("espalier {}: cannot be started: {}", words.front(), std::strerror(fault)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  result.exitCode = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

} // namespace espalier
