// A partially written line is removed again, so that the file always ends with a complete line.
#include "runtime/train/line_file.h"

#include "messages/data_error.h"
#include "messages/write_fault.h"
#include "runtime/files/mapped_file.h"
#include "runtime/status.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace espalier::rt {

LineFile::~LineFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void LineFile::open(const std::filesystem::path &file, bool isContinued) {
  path = file;
  isOld = !isContinued;
  // O_NONBLOCK: opening a pipe without a reader would block the run forever.
  descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_APPEND, 0644);
  if (descriptor < 0)
    throw PlanError(fmt::format("{}: cannot be written: {}", path.string(),
                                errno == ENXIO ? "a pipe that nobody reads" : whyNotWritten(path, errno)));
  ::fcntl(descriptor, F_SETFL, O_APPEND);
}

/// Appends the text. Returns false and prints a warning if the disk rejects the text.
bool LineFile::write(const std::string &text) {
  struct stat before = {};
  bool isFile = ::fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
  if (std::exchange(isOld, false) && isFile) {
    if (::ftruncate(descriptor, 0) != 0) {
      refuse(errno);
      return false;
    }
    before.st_size = 0;
  }
  for (std::string_view left = text; !left.empty();) {
    ssize_t count = ::write(descriptor, left.data(), left.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      int reason = errno;
      if (isFile && ::ftruncate(descriptor, before.st_size) != 0)
        reason = errno;
      refuse(reason);
      return false;
    }
    left.remove_prefix(count);
  }
  return true;
}

void LineFile::add(std::string line) {
  if (descriptor < 0 || !theFault.empty())
    return;
  write(line + "\n");
}

void LineFile::refuse(int reason) {
  theFault = fmt::format("{}: cannot be written: {}", path.string(), std::strerror(reason));
  fmt::print(stderr, "espalier: warning: {}; the run continues without it\n", theFault);
}

int64_t LineFile::dropLast(const std::function<bool(std::string_view)> &isDropped) {
  struct stat status = {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
    return 0;
  int64_t dropped = 0;
  size_t keep = static_cast<size_t>(status.st_size);
  bool isWhole = true; // the kept text ends with a line break
  try {
    MappedFile file(path.string());
    std::string_view text(reinterpret_cast<const char *>(file.bytes().data()), file.bytes().size());
    for (keep = text.size(); keep > 0; ++dropped) {
      isWhole = text[keep - 1] == '\n';
      size_t end = isWhole ? keep - 1 : keep;
      size_t begin = end == 0 ? 0 : text.rfind('\n', end - 1) + 1; // npos + 1: the first line
      if (!isDropped(text.substr(begin, end - begin)))
        break;
      keep = begin;
      isWhole = true;
    }
  } catch (const DataError &) {
    return 0; // the file may be writable but not readable
  }
  if (dropped > 0 && ::ftruncate(descriptor, static_cast<off_t>(keep)) != 0)
    refuse(errno);
  else if (!isWhole)
    write("\n");
  return dropped;
}

} // namespace espalier::rt
