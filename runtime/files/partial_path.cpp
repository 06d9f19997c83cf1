#include "runtime/files/partial_path.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view ending = ".part";

/// Returns the process that has written to `name` for the target, or 0 for another name.
pid_t writerOf(const std::string &name, const std::string &target) {
  std::string beginning = fmt::format(".{}.", target);
  if (!name.starts_with(beginning) || !name.ends_with(ending) || name.size() <= beginning.size() + ending.size())
    return 0;
  pid_t process = 0;
  const char *end = name.data() + name.size() - ending.size();
  auto [last, error] = std::from_chars(name.data() + beginning.size(), end, process);
  return error == std::errc() && last == end ? process : 0;
}

} // namespace

Path partialPath(const Path &target) {
  return target.parent_path() / fmt::format(".{}.{}{}", target.filename().string(), ::getpid(), ending);
}

int holdPartial(const Path &partial) {
  int file = ::open(partial.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0)
    return file;
  if (file >= 0)
    ::close(file);
  return -1;
}

void sweepPartials(const Path &target) {
  std::error_code error;
  std::vector<Path> stale;
  Path folder = target.parent_path().empty() ? Path(".") : target.parent_path();
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (pid_t process = writerOf(entry.path().filename().string(), target.filename().string());
        process > 0 && ::kill(process, 0) != 0 && errno == ESRCH)
      stale.push_back(entry.path());
  for (const Path &path : stale)
    if (int held = holdPartial(path); held >= 0) {
      std::filesystem::remove_all(path, error);
      ::close(held);
    }
}

} // namespace espalier::rt
