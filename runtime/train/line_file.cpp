// What was written of a line that did not fit is taken back: the file ends with a whole one.
#include "runtime/train/line_file.h"

#include "runtime/status.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::rt {

LineFile::~LineFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void LineFile::open(const std::filesystem::path &file, bool isContinued) {
  path = file;
  // Without waiting: a pipe that nobody reads would hold the run for ever.
  descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_APPEND | (isContinued ? 0 : O_TRUNC), 0644);
  if (descriptor < 0)
    throw PlanError(fmt::format("{}: cannot be written: {}", path.string(),
                                errno == ENXIO ? "a pipe that nobody reads" : std::strerror(errno)));
  ::fcntl(descriptor, F_SETFL, O_APPEND);
}

bool LineFile::write(const std::string &text) {
  struct stat before = {};
  bool isFile = ::fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
  for (std::string_view left = text; !left.empty();) {
    ssize_t count = ::write(descriptor, left.data(), left.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      int reason = errno;
      if (isFile && ::ftruncate(descriptor, before.st_size) != 0)
        reason = errno;
      theFault = fmt::format("{}: cannot be written: {}", path.string(), std::strerror(reason));
      return false;
    }
    left.remove_prefix(count);
  }
  return true;
}

void LineFile::add(std::string line) {
  if (descriptor < 0 || !theFault.empty())
    return;
  if (write(line + "\n")) {
    hasLine = true;
    return;
  }
  if (!hasLine)
    throw PlanError(theFault);
  fmt::print(stderr, "espalier: warning: {}; the run goes on without\n", theFault);
}

} // namespace espalier::rt
